"""What differs between two samples: feature by feature, order by order, and for a classifier that tells them apart."""
