"""The trained networks of a compression: pruned, distilled, trained for int8."""
