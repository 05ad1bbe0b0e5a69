//! The keywords of JSON Schema 2020-12, of some earlier drafts and of OpenAPI: which of them constrain the output, which have no
//! effect, and which are rejected.

/// How a keyword is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeywordSupport {
    /// The output satisfies it.
    Enforced,
    /// It does not constrain values.
    Annotation,
    /// It would constrain the output but is not supported: an error, except with this value, which has no effect.
    Refused(Option<&'static str>),
}

use KeywordSupport::{Annotation, Enforced, Refused};

/// Sorted by name.
pub(super) const KEYWORDS: &[(&str, KeywordSupport)] = &[
    ("$anchor", Annotation),
    ("$comment", Annotation),
    ("$defs", Annotation),
    ("$dynamicAnchor", Annotation),
    ("$dynamicRef", Refused(None)),
    ("$id", Annotation),
    ("$recursiveAnchor", Refused(Some("false"))),
    ("$recursiveRef", Refused(None)),
    ("$ref", Enforced),
    ("$schema", Annotation),
    ("$vocabulary", Annotation),
    ("additionalItems", Refused(None)),
    ("additionalProperties", Enforced),
    ("allOf", Enforced),
    ("anyOf", Enforced),
    ("const", Enforced),
    ("contains", Refused(None)),
    ("contentEncoding", Annotation),
    ("contentMediaType", Annotation),
    ("contentSchema", Annotation),
    ("default", Annotation),
    ("definitions", Annotation),
    ("dependencies", Refused(Some("{}"))),
    ("dependentRequired", Refused(Some("{}"))),
    ("dependentSchemas", Refused(Some("{}"))),
    ("deprecated", Annotation),
    ("description", Annotation),
    ("else", Refused(None)),
    ("enum", Enforced),
    ("example", Annotation),
    ("examples", Annotation),
    ("exclusiveMaximum", Enforced),
    ("exclusiveMinimum", Enforced),
    ("format", Enforced),
    ("if", Refused(None)),
    ("items", Enforced),
    ("maxContains", Refused(None)),
    ("maxItems", Enforced),
    ("maxLength", Enforced),
    ("maxProperties", Refused(None)),
    ("maximum", Enforced),
    ("minContains", Refused(None)),
    ("minItems", Enforced),
    ("minLength", Enforced),
    ("minProperties", Refused(Some("0"))),
    ("minimum", Enforced),
    ("multipleOf", Refused(None)),
    ("not", Refused(None)),
    ("nullable", Enforced),
    ("oneOf", Enforced),
    ("pattern", Enforced),
    ("patternProperties", Refused(Some("{}"))),
    ("prefixItems", Refused(Some("[]"))),
    ("properties", Enforced),
    ("propertyNames", Refused(Some("true"))),
    ("readOnly", Annotation),
    ("required", Enforced),
    ("strict", Annotation),
    ("then", Refused(None)),
    ("title", Annotation),
    ("type", Enforced),
    ("unevaluatedItems", Refused(Some("true"))),
    ("unevaluatedProperties", Refused(Some("true"))),
    ("uniqueItems", Refused(Some("false"))),
    ("writeOnly", Annotation),
];

/// How a keyword is handled; none if it is unknown.
pub(super) fn keyword_support(name: &str) -> Option<KeywordSupport> {
    KEYWORDS.iter().find(|(own, _)| *own == name).map(|(_, keyword)| *keyword)
}
