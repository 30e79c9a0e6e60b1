"""Networks: the shallow one of Algorithm 1, the digits CNN, backbones for images, and layers of any module by name."""
