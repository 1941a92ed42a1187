"""What runs inside the sandbox: started as a folder, by itself, so that nothing of Tutelage is loaded there."""
