"""What builds and checks pages."""
