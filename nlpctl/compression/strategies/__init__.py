"""The strategies of compression, one module each; registry.py lists them."""
