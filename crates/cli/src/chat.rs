//! `loom chat`: a conversation in the terminal.

use crate::ExitStatus;
use crate::command::UsageError;
use crate::device::DeviceArgs;
use crate::output::{errln, out, outln};
use crate::run::{ModelSource, SamplingArgs, load, usage_error};
use models::{BatchEngine, BatchOptions, ChatTemplate, TokenHistory, Tokenizer};
use serde_json::{Map, Value as Json, json};
use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;

/// Options of `loom chat`.
#[derive(clap::Args)]
pub(crate) struct Chat {
    #[command(flatten)]
    source: ModelSource,
    /// System prompt
    #[arg(long, alias = "system", value_name = "TEXT")]
    system_prompt: Option<String>,
    /// Maximum number of new tokens per answer
    #[arg(long, alias = "max-new", value_name = "N", default_value = "512", value_parser = crate::command::positive)]
    max_new_tokens: usize,
    /// Maximum tokens of the whole conversation
    #[arg(long, alias = "context", value_name = "N", default_value = "4096", value_parser = crate::command::size)]
    max_seq_len: usize,
    #[command(flatten)]
    choosing: SamplingArgs,
    #[command(flatten)]
    machine: DeviceArgs,
}

pub(crate) fn chat(args: &Chat) -> Result<ExitStatus, UsageError> {
    let sampling = args.choosing.sampling(true)?;
    let model = load(&args.source)?.with_quantized_params().map_err(usage_error)?;
    let dir = args.source.dir();
    let tokenizer = Tokenizer::from_dir(dir).map_err(usage_error)?;
    let template = ChatTemplate::from_dir(dir).map_err(usage_error)?;
    let ends = models::eos_ids(dir, Some(&tokenizer)).map_err(usage_error)?;
    let sizes = BatchOptions { max_batch: 2, max_seq_len: args.max_seq_len, ..BatchOptions::default() };
    let mut slots = BatchEngine::new(Arc::new(model), &[], sizes, args.machine.open()?).map_err(usage_error)?;
    if !template.is_from_model() {
        errln!("note: the model has no chat template; a plain one is used");
    }
    let typed = std::io::stdin().is_terminal();
    if typed {
        errln!("/new starts a new conversation, /end or Ctrl-D exits");
    }
    let system: Vec<Json> =
        args.system_prompt.iter().map(|text| json!({ "role": "system", "content": text })).collect();
    let mut messages = system.clone();
    let mut lines = std::io::stdin().lock().split(b'\n');
    let mut random = sampling.generator();
    loop {
        if typed {
            out!("> ");
            let _ = std::io::stdout().flush();
        }
        let Some(line) = lines.next() else { break };
        let line = line.map_err(|e| UsageError(format!("standard input: {e}")))?;
        let Ok(line) = String::from_utf8(line) else {
            errln!("input is not UTF-8: ignored");
            continue;
        };
        match line.trim() {
            "" => continue,
            "/end" | "/quit" | "/exit" => break,
            "/new" => {
                messages = system.clone();
                continue;
            }
            // A single word after a slash is taken to be a mistyped command.
            word if line.starts_with('/') && word[1..].chars().all(char::is_alphabetic) => {
                errln!(
                    "no command `{word}`: use /new to start a new conversation, /end or Ctrl-D to exit; start the \
                     line with a space to send it as a message"
                );
                continue;
            }
            text => messages.push(json!({ "role": "user", "content": text })),
        }
        // In an interactive conversation, a message that the chat template rejects is dropped and the conversation continues.
        let encoded = template.render(&messages, true, &Map::new()).and_then(|text| tokenizer.encode(&text));
        let ids = match encoded {
            Ok(ids) => ids,
            Err(e) if typed => {
                errln!("{e}");
                messages.pop();
                continue;
            }
            Err(e) => return Err(usage_error(e)),
        };
        if ids.len() + 1 >= slots.sizes().max_seq_len {
            errln!(
                "the conversation has {} tokens, but the maximum sequence length is {}: use /new to start a new \
                 conversation",
                ids.len(),
                slots.sizes().max_seq_len
            );
            messages.pop();
            continue;
        }
        // The KV cache has the earlier turns, so only the new tokens are prefilled.
        slots.start_prefill(&ids, 0).map_err(usage_error)?;
        let mut logits = loop {
            if let Some(logits) = slots.prefill_chunk().map_err(usage_error)? {
                break logits;
            }
        };
        slots.admit().map_err(usage_error)?;
        let mut history = TokenHistory::from_prompt(&ids);
        let mut stream = tokenizer.stream();
        let mut answer = String::new();
        for _ in 0..args.max_new_tokens {
            sampling.apply_penalties(&mut logits, &history);
            let id = sampling.sample(&logits, &mut random) as i32;
            if ends.contains(&id) {
                break;
            }
            history.push(id);
            let piece = stream.push(id).map_err(usage_error)?;
            out!("{piece}");
            let _ = std::io::stdout().flush();
            answer += &piece;
            if slots.row_length(0) + 1 >= slots.sizes().max_seq_len {
                break;
            }
            logits = slots.step(&[id]).map_err(usage_error)?.0;
        }
        slots.evict(0).map_err(usage_error)?;
        let rest = stream.flush().map_err(usage_error)?;
        outln!("{rest}");
        answer += &rest;
        messages.push(json!({ "role": "assistant", "content": answer }));
    }
    Ok(ExitStatus::Success)
}
