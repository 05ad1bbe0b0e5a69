//! Derive macros: `#[derive(Tree)]` for a struct of trees, `#[derive(Module)]` for a struct of modules. With the feature
//! `include`, `include_module!` compiles a file of the model language to Rust. The crate `tensorloom` exports all of them.
//!
//! Fields marked `#[tree(skip)]` are not part of the tree: they are cloned when it is rebuilt. Fields marked `#[tree(fixed)]` are
//! cloned too, and a compiled function is compiled again when their value changes, so they must implement `Hash`.

#[cfg(feature = "include")]
mod include;

use proc_macro::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, Field, Fields, Index, Member, parse_macro_input};

/// How the derive macros treat a field.
#[derive(Clone, Copy, PartialEq)]
enum FieldRole {
    Tree,
    Skip,
    Fixed,
}

/// Implements `tensorloom::Tree` for a struct. The leaves are those of the fields, in order.
#[proc_macro_derive(Tree, attributes(tree))]
pub fn derive_tree(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(input).unwrap_or_else(|e| e.to_compile_error()).into()
}

/// Implements `tensorloom::nn::Module` for a struct. The parameters are those of the fields, and their names start with the field
/// name. Fields marked `#[module(skip)]` are left out.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand_module(input).unwrap_or_else(|e| e.to_compile_error()).into()
}

/// Includes a `.module` file. The path is relative to the folder of the crate's `Cargo.toml`.
///
/// The file is parsed and checked when the crate is compiled. Each diagnostic is a rustc error with the position in the `.module`
/// file. For every model or module whose parameters have plain types, the macro generates a struct with those parameters as
/// fields and a method `lower` with one argument per input.
///
/// ```ignore
/// tensorloom::include_module!("src/net.module");
///
/// let net = Net { width: 64, ..Net::new(10) };           // `width` has a default, the first parameter has none
/// let lowered = net.lower(Type::new(DType::F32, &[8, 64]), &Options::default())?;
/// ```
#[cfg(feature = "include")]
#[proc_macro]
pub fn include_module(input: TokenStream) -> TokenStream {
    include::include_module(input)
}

fn is_skipped(field: &Field) -> Result<bool, Error> {
    let mut skip = false;
    for attr in field.attrs.iter().filter(|a| a.path().is_ident("module")) {
        attr.parse_nested_meta(|meta| {
            skip = meta.path.is_ident("skip");
            if skip { Ok(()) } else { Err(meta.error("expected `skip`")) }
        })?;
    }
    Ok(skip)
}

fn expand_module(input: DeriveInput) -> Result<proc_macro2::TokenStream, Error> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(
            &input.ident,
            "Module can only be derived for structs; implement `walk` for an enum",
        ));
    };
    let mut visits = Vec::new();
    for (i, field) in data.fields.iter().enumerate() {
        if is_skipped(field)? {
            continue;
        }
        let (member, name) = match &field.ident {
            Some(ident) => (Member::Named(ident.clone()), ident.to_string()),
            None => (Member::Unnamed(Index::from(i)), i.to_string()),
        };
        visits.push(quote! { v.child(#name, &self.#member); });
    }
    let name = &input.ident;
    let mut generics = input.generics.clone();
    for p in generics.type_params_mut() {
        p.bounds.push(syn::parse_quote!(::tensorloom::nn::Module));
    }
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let (_, ty_generics, _) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::tensorloom::nn::Module for #name #ty_generics #where_clause {
            fn walk(&self, v: &mut ::tensorloom::nn::Visit<'_>) {
                let _ = &v;
                #(#visits)*
            }
        }
    })
}

fn field_role(field: &Field) -> Result<FieldRole, Error> {
    let mut role = FieldRole::Tree;
    for attr in field.attrs.iter().filter(|a| a.path().is_ident("tree")) {
        attr.parse_nested_meta(|meta| {
            if meta.path.is_ident("skip") {
                role = FieldRole::Skip;
            } else if meta.path.is_ident("fixed") {
                role = FieldRole::Fixed;
            } else {
                return Err(meta.error("expected `skip` or `fixed`"));
            }
            Ok(())
        })?;
    }
    Ok(role)
}

fn expand(input: DeriveInput) -> Result<proc_macro2::TokenStream, Error> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(
            &input.ident,
            "Tree can only be derived for structs; put an enum into a `fixed` field",
        ));
    };
    let (members, fields): (Vec<Member>, Vec<&Field>) = match &data.fields {
        Fields::Named(named) => {
            (named.named.iter()).map(|f| (Member::Named(f.ident.clone().expect("it is named")), f)).unzip()
        }
        Fields::Unnamed(unnamed) => {
            (unnamed.unnamed.iter().enumerate()).map(|(i, f)| (Member::Unnamed(Index::from(i)), f)).unzip()
        }
        Fields::Unit => (Vec::new(), Vec::new()),
    };
    let mut visits = Vec::new();
    let mut builds = Vec::new();
    let mut structures = Vec::new();
    for (i, (member, field)) in members.iter().zip(&fields).enumerate() {
        let part = format_ident!("part{i}");
        match field_role(field)? {
            FieldRole::Tree => {
                visits.push(quote! { ::tensorloom::Tree::visit(&self.#member, f); });
                builds.push(quote! { let #part = ::tensorloom::Tree::rebuild(&self.#member, next); });
                structures.push(quote! { ::tensorloom::Tree::structure(&self.#member, into); });
            }
            FieldRole::Skip => builds.push(quote! { let #part = ::core::clone::Clone::clone(&self.#member); }),
            FieldRole::Fixed => {
                builds.push(quote! { let #part = ::core::clone::Clone::clone(&self.#member); });
                structures.push(quote! { ::core::hash::Hash::hash(&self.#member, &mut { &mut *into }); });
            }
        }
    }
    let assigns = members.iter().enumerate().map(|(i, m)| {
        let part = format_ident!("part{i}");
        quote! { #m: #part }
    });
    let name = &input.ident;
    let mut generics = input.generics.clone();
    for p in generics.type_params_mut() {
        p.bounds.push(syn::parse_quote!(::tensorloom::Tree));
    }
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let (_, ty_generics, _) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::tensorloom::Tree for #name #ty_generics #where_clause {
            fn visit(&self, f: &mut dyn FnMut(&::tensorloom::Tensor)) {
                let _ = &f;
                #(#visits)*
            }

            fn rebuild(&self, next: &mut dyn FnMut() -> ::tensorloom::Tensor) -> Self {
                let _ = &next;
                #(#builds)*
                #name { #(#assigns),* }
            }

            fn structure(&self, into: &mut dyn ::core::hash::Hasher) {
                let _ = &into;
                #(#structures)*
            }
        }
    })
}
