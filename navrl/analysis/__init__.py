"""What runs have shown: records read, groups of seeds compared, tables, figures and reports. Trains nothing."""
