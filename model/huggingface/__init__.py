"""Reading and writing of the Hugging Face format."""
