"""What goes beyond the paper: length records."""
