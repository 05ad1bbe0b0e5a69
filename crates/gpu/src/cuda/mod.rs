//! CUDA: the text of grids for its compiler.
