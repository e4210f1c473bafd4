"""What is computed: Triton kernels, references, cost models."""
