"""All that exists for the paper alone: data sets, networks, experiments and their pages."""
