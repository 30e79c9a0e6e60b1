"""The paper's experiments as data, and what runs them."""
