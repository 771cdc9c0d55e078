"""Every sentence that people read, by the code that programs carry. `sentence(note)` says a note."""
