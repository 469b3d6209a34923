"""What layers of networks are made of, and their losses."""
