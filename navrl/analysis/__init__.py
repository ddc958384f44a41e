"""What is read out of finished runs: curves now, groups and statistics as they come. Reads the local record only."""
