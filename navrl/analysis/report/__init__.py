"""A comparison handed over to people: one document (data.py), shown as a page, as Markdown or as a W&B Report."""
