"""Deep adaptation: any network, two loaders, and the distance at a named layer, trained by Lightning."""
