"""What an attack's guess is measured by."""
