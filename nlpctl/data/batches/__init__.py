"""Examples into batches."""
