"""What each operation of a Mosaic module does, by dialect and kind. Importing a module registers its rules."""
