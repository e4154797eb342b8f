"""Where covlearn meets other libraries. Each module names the extra that brings its library."""
