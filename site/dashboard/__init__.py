"""How it is shown: records to pages."""
