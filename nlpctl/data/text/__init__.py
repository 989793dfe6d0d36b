"""Text into token ids, with offsets."""
