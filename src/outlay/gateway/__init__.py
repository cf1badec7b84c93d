"""The live path: stands before real inference servers, and keeps interactions within their budget."""
