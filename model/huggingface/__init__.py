"""Reading and writing the Hugging Face format."""
