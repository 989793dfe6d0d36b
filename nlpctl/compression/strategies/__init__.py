"""The strategies of compression, a module each; registry.py lists them."""
