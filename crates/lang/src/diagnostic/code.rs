//! The diagnostic codes: E and W codes as numbered in the language's specification, and our own L codes.

use std::fmt;

/// The severity of a diagnostic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// The file cannot be compiled until this is fixed.
    Error,
    /// The file compiles, but probably not as intended.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// Declares [`Code`] with each code's title and explanation, so that none can be missing.
macro_rules! codes {
    ($($code:ident, $severity:ident, $title:literal, $explanation:literal;)*) => {
        /// The code of a diagnostic.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Code {
            $(#[doc = $title] $code,)*
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &'static [Code] = &[$(Code::$code),*];

            /// The code as printed, such as `E004`.
            pub fn name(self) -> &'static str {
                match self { $(Code::$code => stringify!($code),)* }
            }

            /// A short title.
            pub fn title(self) -> &'static str {
                match self { $(Code::$code => $title,)* }
            }

            /// When the code is reported and how to fix the problem.
            pub fn explanation(self) -> &'static str {
                match self { $(Code::$code => $explanation,)* }
            }

            /// The severity of diagnostics with this code.
            pub fn severity(self) -> Severity {
                match self { $(Code::$code => Severity::$severity,)* }
            }
        }
    };
}

codes! {
    E001, Error, "syntax error",
        "The text does not follow the grammar. The caret marks where parsing stopped; the label says what was \
         expected.";
    E002, Error, "undefined identifier",
        "A name is used that no parameter, let binding, tensor, import or declaration in scope defines. Check the \
         spelling, or import it.";
    E003, Error, "type mismatch",
        "A value of one kind is given where another is needed: a tensor for a number, three outputs for two names, a \
         string for an int.";
    E004, Error, "shape mismatch",
        "Two sizes that an operation needs equal are different expressions of the module's dimensions, so the module is wrong for some sizes. Sizes are compared as polynomials, not as numbers.";
    E005, Error, "missing required gradient",
        "A written backward graph must compute d_<name> for every input and every trainable parameter. Mark an input @gradient(skip) or a parameter @frozen to leave its gradient out, or leave out the whole backward section to have it derived.";
    E006, Error, "saved tensor not available in backward",
        "saved.<name> reads a tensor that the forward pass did not keep. Add it to the forward section's save list, or mark it @memory(save).";
    E007, Error, "circular dependency in graph",
        "Tensors of a graph depend on one another in a cycle, so none of them can be computed first.";
    E008, Error, "invalid annotation",
        "The annotation does not exist, is not allowed at this place, or has an unknown argument.";
    E009, Error, "duplicate parameter name",
        "Two parameters of one declaration, or two entries of one section, have the same name.";
    E010, Error, "invalid weight mapping",
        "An entry of hf_mapping or hf_export names a parameter that the model does not have, maps one twice, or uses a placeholder that its left side does not bind.";
    E011, Error, "incompatible inheritance",
        "A module extends something that is not a module, extends itself, redefines what it inherits without a matching type, or leaves an abstract parent without a graph.";
    E012, Error, "missing required parameter",
        "A module is instantiated without a parameter that has no default.";
    E013, Error, "invalid fusion pattern",
        "@fuse names a pattern that does not exist, or lists operations that the annotated statement does not perform.";
    E014, Error, "unsupported primitive",
        "A graph calls an operation that is neither a primitive nor a module in scope.";
    E015, Error, "invalid dtype for operation",
        "A tensor has an element type that the operation cannot take, such as float token ids for an embedding.";
    E016, Error, "if guard must be a constant expression",
        "Graphs are fixed at compile time. A guard may use parameters, let bindings and literals, never the values or the shape of a tensor.";
    E017, Error, "tensor redefined in the same scope",
        "Graphs are in single assignment form: each name is defined once per scope. Only d_<param> may be written \
         again, with accumulate=true.";
    E018, Error, "gradient shape mismatch",
        "A gradient must have exactly the shape of the tensor it belongs to.";
    E019, Error, "circular gradient dependency",
        "Gradients of a backward graph depend on one another in a cycle.";
    E020, Error, "gradient dtype incompatible",
        "A gradient has an element type that cannot accumulate into the tensor it belongs to without an explicit cast.";
    E021, Error, "recompute tensor not derivable from saved tensors",
        "A tensor to be recomputed depends, through its operations, on a tensor that is neither saved, an input, a parameter, nor recomputed itself.";
    E022, Error, "circular recompute dependency",
        "Tensors to be recomputed depend on one another in a cycle, so the backward pass could never start.";
    E023, Error, "import name conflict",
        "Two imports bring the same name into the file. Give one of them another name with `as`.";
    E024, Error, "import alias shadows existing name",
        "The name after `as` is already taken in this file.";
    E025, Error, "checkpoint spans pipeline stages",
        "A checkpointed region must lie in one pipeline stage, because its replay runs on one device.";
    E026, Error, "invalid constraint expression",
        "A constraint must be a constant expression that is true or false.";
    E027, Error, "constraint violation",
        "A constraint of the module is false for the given parameters.";

    W001, Warning, "definition shadows primitive",
        "A declaration has the name of a primitive; in this file the declaration wins.";
    W002, Warning, "definition shadows import",
        "A declaration has the name of an import; in this file the declaration wins.";
    W003, Warning, "suboptimal derived backward",
        "The backward pass is derived, and the save list leaves out a tensor it needs, so that part of the forward pass runs twice.";
    W004, Warning, "unused saved tensor",
        "A tensor is kept for the backward pass, which never reads it.";
    W005, Warning, "implicit dtype narrowing",
        "A value is rounded to a narrower element type without an annotation saying so.";

    L001, Error, "not supported yet",
        "The construct is part of the language, but this version of the compiler does not support it.";
    L002, Error, "module not found",
        "No file of the standard library or of the project provides the imported path, name or version.";
    L003, Error, "import cycle",
        "Files import one another in a cycle.";
    L004, Error, "lock mismatch",
        "module.lock pins another version than the one that the import resolves to. Update the lock, or import the pinned version.";
    L005, Error, "name declared twice",
        "Two declarations of one file have the same name.";
    L006, Error, "reserved name",
        "The name belongs to the language and cannot be given to something else.";
    L007, Error, "abstract module instantiated",
        "An abstract module has no graph to run; instantiate a module that extends it.";
    L008, Error, "too large",
        "Lowering this would make more modules or run more statements than the bound that the message names. Larger \
         models are usually caused by a wrong size.";

    L101, Warning, "deprecated syntax",
        "An older spelling that still works; the formatter writes the current one.";
    L102, Warning, "no effect yet",
        "The annotation requests something that is not available here: several devices, another memory, kernels by \
         name. It is checked, but the model computes the same as without it.";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
