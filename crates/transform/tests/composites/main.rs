//! Every composite of the library: values against PyTorch, derivatives against finite differences and against the
//! body, batching against a loop, the text form, and bf16 against f64.

mod activation;
mod attention;
mod check;
mod dropout;
mod embedding;
mod loss;
mod norm;
mod rope;
mod softmax;
mod totality;
