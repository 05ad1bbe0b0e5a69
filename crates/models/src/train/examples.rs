//! Examples that are rows of their own: conversations whose prompts are not learned, preferences, classes, pairs of texts.
//!
//! They are encoded once, to a file, and read by their place: memory doesn't grow with the data.

use super::aim::{Aim, PAD};
use super::batches::Batch;
use super::shuffle::Shuffle;
use super::text::Texts;
use super::tokens::{Reading, unbuffered};
use crate::chat::ChatTemplate;
use crate::error::{Error, Result};
use crate::pooling::Mode;
use crate::tokenizer::Tokenizer;
use serde_json::{Map, Value as Json, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use train::files::{self, NewFile};

/// Of this many examples, the last is held out.
const HELD_OUT: u64 = 20;
const SHUFFLED: u64 = 1 << 42;

/// Ids of a row, and a label for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    ids: Vec<i32>,
    labels: Vec<i32>,
}

/// The examples of a set.
pub(crate) struct Examples {
    folder: PathBuf,
    data: File,
    /// Where those that are trained on, and those that are held out, begin in the data.
    index: [File; 2],
    counts: [u64; 2],
    aim: Aim,
    seq: usize,
    seed: u64,
    fingerprint: u32,
    /// Names of classes.
    classes: Vec<String>,
    /// Examples that had nothing to learn within a sequence.
    pub(crate) left_out: u64,
    /// Examples whose prompt and answer together don't begin with the tokens of the prompt alone.
    pub(crate) crossed: u64,
}

/// What turns records into rows.
struct Encoder<'a> {
    aim: Aim,
    seq: usize,
    tokenizer: &'a Tokenizer,
    /// Gives the places of tokens in a text.
    places: Tokenizer,
    template: &'a ChatTemplate,
    pooling: Mode,
    classes: Vec<String>,
    crossed: u64,
}

const INDEX: [&str; 2] = ["examples.idx", "held-out.idx"];

impl Examples {
    /// Encodes the records of some files, or finds them encoded.
    pub(crate) fn prepare(
        texts: &Texts,
        (tokenizer, template): (&Tokenizer, &ChatTemplate),
        (aim, seq, seed, pooling): (Aim, usize, u64, Mode),
        folder: &Path,
        reading: Reading<'_>,
    ) -> Result<Examples> {
        let key = json!({
            "texts": texts.fingerprint()?, "tokenizer": tokenizer.fingerprint()?, "template": template.fingerprint(),
            "aim": aim.kind(), "seq": seq, "end": tokenizer.end(), "pooling": format!("{pooling:?}"),
        });
        if let Ok(found) = Examples::open(folder, &key, (aim, seq, seed)) {
            return Ok(found);
        }
        files::make_folder(folder)?;
        let mut encoder = Encoder::new((tokenizer, template), (aim, seq, pooling));
        let create = |name: &str| NewFile::create(&folder.join(name)).map(BufWriter::new);
        let (mut data, mut index) = (create("examples.bin")?, [create(INDEX[0])?, create(INDEX[1])?]);
        let (mut at, mut counts, mut left_out, mut seen) = (0u64, [0u64; 2], 0u64, 0u64);
        let mut sum = crc32fast::Hasher::new();
        let read = texts.records(|record, fault| {
            let rows = encoder.rows(record).map_err(|e| fault(e.to_string()))?;
            let Some(rows) = rows else {
                left_out += 1;
                return Ok(true);
            };
            seen += 1;
            let held_out = usize::from(seen.is_multiple_of(HELD_OUT));
            let mut bytes = Vec::new();
            for row in &rows {
                bytes.extend((row.ids.len() as i32).to_le_bytes());
                bytes.extend(row.ids.iter().chain(&row.labels).flat_map(|x| x.to_le_bytes()));
            }
            sum.update(&bytes);
            data.write_all(&bytes).map_err(|e| Error::file(data.get_ref().path(), e))?;
            index[held_out].write_all(&at.to_le_bytes()).map_err(|e| Error::file(folder, e))?;
            at += bytes.len() as u64;
            counts[held_out] += 1;
            Ok(!seen.is_multiple_of(256) || reading((at / 2).min(texts.bytes()), texts.bytes()))
        })?;
        if read.is_none() {
            return Err(Error::Stopped);
        }
        if counts[0] == 0 {
            let why = if left_out > 0 { ": none has an answer within `--seq` ids" } else { "" };
            return Err(Error::Input(format!("the data has no examples to train on{why}")));
        }
        unbuffered(data)?.finish()?;
        for file in index {
            unbuffered(file)?.finish()?;
        }
        let about = json!({
            "key": key, "train": counts[0], "held_out": counts[1], "bytes": at, "sum": sum.finalize(),
            "classes": encoder.classes, "left_out": left_out, "crossed": encoder.crossed,
        });
        files::write(&folder.join("examples.json"), format!("{about:#}\n").as_bytes())?;
        Examples::open(folder, &key, (aim, seq, seed))
    }

    fn open(folder: &Path, key: &Json, (aim, seq, seed): (Aim, usize, u64)) -> Result<Examples> {
        let about = folder.join("examples.json");
        let damaged = || Error::file(&about, "damaged, or of other data: remove it, and it is made again");
        let text = files::read_text(&about, files::TEXT)?;
        let json: Json = serde_json::from_str(&text).map_err(|_| damaged())?;
        if json.get("key") != Some(key) {
            return Err(damaged());
        }
        let number = |name: &str| json.get(name).and_then(Json::as_u64).ok_or_else(damaged);
        let counts = [number("train")?, number("held_out")?];
        let path = folder.join("examples.bin");
        let data = files::open(&path)?;
        let index = [files::open(&folder.join(INDEX[0]))?, files::open(&folder.join(INDEX[1]))?];
        let length = |file: &File| file.metadata().map(|m| m.len()).unwrap_or(0);
        let whole = length(&data) == number("bytes")? && (0..2).all(|i| length(&index[i]) == 8 * counts[i]);
        if !whole || u64::from(super::tokens::sum_of(&data, &path)?) != number("sum")? {
            return Err(damaged());
        }
        let classes = json.get("classes").and_then(Json::as_array).cloned().unwrap_or_default();
        let classes = classes.iter().filter_map(|c| c.as_str().map(String::from)).collect::<Vec<_>>();
        let fingerprint = crc32fast::hash(format!("{key} {}", number("sum")?).as_bytes());
        let (left_out, crossed) = (number("left_out")?, number("crossed")?);
        let folder = folder.to_path_buf();
        Ok(Examples { folder, data, index, counts, aim, seq, seed, fingerprint, classes, left_out, crossed })
    }

    pub(crate) fn fingerprint(&self) -> u32 {
        self.fingerprint
    }

    /// How many are trained on, and how many are held out.
    pub(crate) fn counts(&self) -> [u64; 2] {
        self.counts
    }

    /// Names of the classes that were found.
    pub(crate) fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Appends the example of a position: a new order every pass.
    pub(crate) fn add(&self, at: u64, batch: &mut Batch) -> Result<()> {
        let count = self.counts[0];
        let chosen = Shuffle::new(count, self.seed, SHUFFLED + at / count).at(at % count);
        self.read(0, chosen, batch)
    }

    /// Batches of those that are held out, spread over them.
    pub(crate) fn held_out(&self, rows: usize, most: usize) -> Result<Vec<Batch>> {
        let each = self.aim.rows_each();
        let wanted = self.counts[1].min((rows / each * most) as u64);
        let mut batches = Vec::new();
        let places: Vec<u64> = (0..wanted).map(|i| i * self.counts[1] / wanted).collect();
        for places in places.chunks((rows / each).max(1)) {
            let mut batch = Batch::default();
            for place in places {
                self.read(1, *place, &mut batch)?;
            }
            batch.ids.resize(rows * self.seq, 0);
            batch.labels.resize(rows * self.seq, -100);
            batches.push(batch);
        }
        Ok(batches)
    }

    fn read(&self, part: usize, place: u64, batch: &mut Batch) -> Result<()> {
        let (index, data) = (self.folder.join(INDEX[part]), self.folder.join("examples.bin"));
        let damaged = || Error::file(&data, "damaged: remove it, and it is made again");
        let mut bytes = [0; 8];
        files::read_at(&self.index[part], &index, 8 * place, &mut bytes)?;
        let mut at = u64::from_le_bytes(bytes);
        let pad = if matches!(self.aim, Aim::Dpo { .. } | Aim::Orpo { .. }) { PAD } else { -100 };
        for _ in 0..self.aim.rows_each() {
            let mut count = [0; 4];
            files::read_at(&self.data, &data, at, &mut count)?;
            let n = usize::try_from(i32::from_le_bytes(count)).ok().filter(|n| *n <= self.seq).ok_or_else(damaged)?;
            let mut bytes = vec![0; 8 * n];
            files::read_at(&self.data, &data, at + 4, &mut bytes)?;
            at += 4 + 8 * n as u64;
            let numbers: Vec<i32> =
                bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
            batch.ids.extend(numbers[..n].iter().copied().chain(std::iter::repeat_n(0, self.seq - n)));
            batch.labels.extend(numbers[n..].iter().copied().chain(std::iter::repeat_n(pad, self.seq - n)));
        }
        Ok(())
    }
}

impl<'a> Encoder<'a> {
    fn new(
        (tokenizer, template): (&'a Tokenizer, &'a ChatTemplate),
        (aim, seq, pooling): (Aim, usize, Mode),
    ) -> Encoder<'a> {
        let places = tokenizer.without_post_processor();
        Encoder { aim, seq, tokenizer, places, template, pooling, classes: Vec::new(), crossed: 0 }
    }

    /// The rows of a record; none where nothing of it is learned within a sequence.
    fn rows(&mut self, record: &Json) -> Result<Option<Vec<Row>>> {
        let rows = match self.aim {
            Aim::Dpo { .. } | Aim::Orpo { .. } => self.preference(record)?,
            Aim::Classify { classes } => vec![self.class(record, classes)?],
            Aim::Contrast { .. } => {
                let find = |names: &[&str]| names.iter().find_map(|name| record.get(*name)?.as_str());
                let first = find(&["anchor", "query", "sentence1", "text"]);
                let second = find(&["positive", "answer", "sentence2"]);
                let (Some(first), Some(second)) = (first, second) else {
                    return Err(Error::Input("needs `anchor` and `positive`, two texts that belong together".into()));
                };
                vec![self.whole(first)?, self.whole(second)?]
            }
            _ => self.conversation(record)?,
        };
        let learns = |row: &Row| row.labels.iter().any(|label| *label >= 0);
        Ok(rows.iter().all(learns).then_some(rows))
    }

    /// A text of which those tokens count that its embedding is the mean of.
    fn whole(&self, text: &str) -> Result<Row> {
        let ids = self.truncated(text)?;
        let last = ids.len().saturating_sub(1);
        let counts = |i: usize| match self.pooling {
            Mode::Mean | Mode::MeanSqrt => Ok(true),
            Mode::First => Ok(i == 0),
            Mode::Last => Ok(i == last),
            other => Err(Error::Input(format!(
                "`contrast` trains embeddings by mean, first or last token, not by {other:?}"
            ))),
        };
        let labels = (0..ids.len()).map(|i| Ok(if counts(i)? { 1 } else { -100 })).collect::<Result<_>>()?;
        Ok(Row { ids, labels })
    }

    /// Ids of a text that a model reads as a whole; what ends every text stays where it is cut.
    fn truncated(&self, text: &str) -> Result<Vec<i32>> {
        let mut ids = self.tokenizer.whole(text)?;
        if ids.len() > self.seq {
            let (_, after) = self.tokenizer.around()?;
            ids.truncate(self.seq.saturating_sub(after.len()));
            ids.extend(after);
        }
        Ok(ids)
    }

    fn class(&mut self, record: &Json, classes: usize) -> Result<Row> {
        let Some(text) = record.get("text").and_then(Json::as_str) else {
            return Err(Error::Input("no field `text` that is a string".into()));
        };
        let label = match record.get("label") {
            Some(Json::Number(n)) => n.as_u64().map(|n| n as usize),
            Some(Json::Bool(b)) => Some(usize::from(*b)),
            Some(Json::String(name)) => {
                Some(self.classes.iter().position(|known| known == name).unwrap_or_else(|| {
                    self.classes.push(name.clone());
                    self.classes.len() - 1
                }))
            }
            _ => None,
        };
        let Some(label) = label else { return Err(Error::Input("no field `label`: a class by number or name".into())) };
        if classes > 0 && label >= classes || label > 1_000_000 {
            return Err(Error::Input(format!(
                "class {label}, and there are {classes}: give `classes=` with their number"
            )));
        }
        if matches!(record.get("label"), Some(Json::Number(_) | Json::Bool(_))) {
            for known in self.classes.len()..=label {
                self.classes.push(known.to_string());
            }
        }
        let ids = self.truncated(text)?;
        let mut labels = vec![-100; ids.len()];
        if let Some(last) = labels.last_mut() {
            *last = label as i32;
        }
        Ok(Row { ids, labels })
    }

    /// Ids of which some are learned, as a row: each id's label is the one that follows.
    fn row(&self, text: &[i32], learned: impl Fn(usize) -> bool) -> Row {
        let text = &text[..text.len().min(self.seq + 1)];
        let Some((_, ids)) = text.split_last() else { return Row::default() };
        let labels = (1..text.len()).map(|i| if learned(i) { text[i] } else { -100 });
        Row { ids: ids.to_vec(), labels: labels.collect() }
    }

    /// A prompt with each of its answers. Prompt and answer are encoded together, and the answer begins where the tokens are no longer
    /// those of the prompt alone, as in TRL.
    fn continued(&mut self, prompt: &[i32], whole: &[Vec<i32>]) -> Vec<Row> {
        let start = whole.iter().map(|whole| same(prompt, whole)).min().unwrap_or(0);
        self.crossed += u64::from(start < prompt.len());
        whole.iter().map(|whole| self.row(whole, |i| i >= start)).collect()
    }

    /// A prompt and answers that end.
    fn answers(&mut self, prompt: &str, answers: &[&str]) -> Result<Vec<Row>> {
        let (tokenizer, special) = (self.tokenizer, self.tokenizer.special_tokens());
        let end = special.named.get("eos_token").filter(|name| tokenizer.id(name) == special.eos);
        let ended = |answer: &&str| match end {
            Some(end) if !answer.ends_with(end.as_str()) => tokenizer.prompt(&format!("{prompt}{answer}{end}")),
            Some(_) => tokenizer.prompt(&format!("{prompt}{answer}")),
            // Only its id is known.
            None => Ok([tokenizer.prompt(&format!("{prompt}{answer}"))?, Vec::from_iter(tokenizer.end())].concat()),
        };
        let whole = answers.iter().map(ended).collect::<Result<Vec<_>>>()?;
        Ok(self.continued(&tokenizer.prompt(prompt)?, &whole))
    }

    /// Messages and answers to them, each of one or several messages.
    fn replies(&mut self, prompt: &[Json], answers: &[&[Json]], further: &Map<String, Json>) -> Result<Vec<Row>> {
        let whole = answers.iter().map(|answer| self.rendered(&[prompt, answer].concat(), false, further));
        let whole = whole.collect::<Result<Vec<_>>>()?;
        Ok(self.continued(&self.rendered(prompt, true, further)?, &whole))
    }

    fn conversation(&mut self, record: &Json) -> Result<Vec<Row>> {
        let further = variables(record)?;
        let field = |name: &str| record.get(name).filter(|value| !value.is_null());
        if let Some(talk) = field("messages").or_else(|| field("conversations")).and_then(message_list) {
            return Ok(vec![self.messages(&talk, &further)?]);
        }
        match (field("prompt"), field("completion").or_else(|| field("response"))) {
            (Some(Json::String(prompt)), Some(Json::String(answer))) => self.answers(prompt, &[answer]),
            (prompt, answer) => match (prompt.and_then(message_list), answer.and_then(message_list)) {
                (Some(prompt), Some(answer)) => self.replies(&prompt, &[&answer], &further),
                _ => Err(Error::Input("needs `messages`, or `prompt` and `completion`".into())),
            },
        }
    }

    fn rendered(&self, messages: &[Json], open: bool, further: &Map<String, Json>) -> Result<Vec<i32>> {
        self.tokenizer.encode(&self.template.render(messages, open, further)?)
    }

    /// A conversation of which what the assistant says is learned: what the template marks with `{% generation %}`, or else
    /// what it adds for each message of the assistant.
    fn messages(&self, messages: &[Json], further: &Map<String, Json>) -> Result<Row> {
        let rendered = self.template.render_marked(messages, false, further)?;
        let (whole, places): (Vec<i32>, Vec<Range<usize>>) =
            self.places.encode_with_places(&rendered.text)?.into_iter().unzip();
        let first = |at: usize| places.iter().position(|place| place.end > at).unwrap_or(places.len());
        let end = |at: usize| token_end(&places, &rendered.text[..at]);
        let mut parts = Vec::new();
        if !rendered.generated.is_empty() && !rendered.lost {
            parts.extend(rendered.generated.iter().map(|part| first(part.start)..end(part.end)));
        } else {
            for (i, message) in messages.iter().enumerate() {
                if message.get("role").and_then(Json::as_str) == Some("assistant") {
                    let open = self.template.render(&messages[..i], true, further)?;
                    let before = match rendered.text.starts_with(&open) {
                        true => first(open.len()),
                        false => same(&self.tokenizer.encode(&open)?, &whole),
                    };
                    let closed = self.template.render(&messages[..=i], false, further)?;
                    parts.push(match rendered.text.starts_with(&closed) {
                        true => before..end(closed.len()),
                        false => before..answer_end(&self.tokenizer.encode(&closed)?, &whole, before),
                    });
                }
            }
        }
        if parts.is_empty() {
            return Err(Error::Input("`messages` without one of the assistant: there is nothing to learn".into()));
        }
        Ok(self.row(&whole, |i| parts.iter().any(|part| part.contains(&i))))
    }

    fn preference(&mut self, record: &Json) -> Result<Vec<Row>> {
        let further = &variables(record)?;
        let field = |name: &str| record.get(name).filter(|value| !value.is_null());
        if let (Some(Json::String(chosen)), Some(Json::String(rejected))) = (field("chosen"), field("rejected")) {
            match field("prompt") {
                Some(Json::String(prompt)) => return self.answers(prompt, &[chosen, rejected]),
                None => {
                    let (prompt, chosen, rejected) = shared_prompt(chosen, rejected);
                    return self.answers(prompt, &[chosen, rejected]);
                }
                Some(_) => {}
            }
        }
        match (field("chosen").and_then(message_list), field("rejected").and_then(message_list)) {
            (Some(chosen), Some(rejected)) => match field("prompt").and_then(message_list) {
                Some(prompt) => self.replies(&prompt, &[&chosen, &rejected], further),
                // Whole conversations: what they share is the prompt.
                None => {
                    let most = chosen.len().min(rejected.len()).saturating_sub(1);
                    let shared = (0..most).take_while(|i| chosen[*i] == rejected[*i]).count();
                    self.replies(&chosen[..shared], &[&chosen[shared..], &rejected[shared..]], further)
                }
            },
            _ => Err(Error::Input("needs `chosen` and `rejected`, both texts or both messages, and a `prompt`".into())),
        }
    }
}

/// A list of messages; those in the form `from` and `value` get `role` and `content`.
fn message_list(list: &Json) -> Option<Vec<Json>> {
    let renamed = |message: &Json| match (message.get("from"), message.get("value")) {
        (Some(role), Some(content)) => {
            let mut fields = message.as_object().cloned().unwrap_or_default();
            (fields.remove("from"), fields.remove("value"));
            fields.extend([("role".to_string(), role.clone()), ("content".to_string(), content.clone())]);
            Json::Object(fields)
        }
        _ => message.clone(),
    };
    Some(list.as_array()?.iter().map(renamed).collect())
}

/// What two texts begin with, without a space at its end, and what follows it in each. Something follows it.
fn shared_prompt<'a>(chosen: &'a str, rejected: &'a str) -> (&'a str, &'a str, &'a str) {
    let most = chosen.chars().count().min(rejected.chars().count()).saturating_sub(1);
    let pairs = chosen.char_indices().zip(rejected.chars()).take(most);
    let mut at = pairs.take_while(|((_, a), b)| a == b).map(|((at, a), _)| at + a.len_utf8()).last().unwrap_or(0);
    let differ = chosen[at..].chars().next() != rejected[at..].chars().next();
    at -= usize::from(differ && chosen[..at].ends_with(' '));
    (&chosen[..at], &chosen[at..], &rejected[at..])
}

/// Behind which token a beginning of a text ends: the first that has something of its last character.
fn token_end(places: &[Range<usize>], text: &str) -> usize {
    let Some((last, _)) = text.char_indices().last() else { return 0 };
    let at = places.iter().position(|place| place.end > last).unwrap_or(places.len());
    at + usize::from(places.get(at).is_some_and(|place| place.start <= last))
}

/// What a record has for the template beside its messages: `tools` and `documents` (lists, or JSON of them), and the fields of
/// `chat_template_kwargs`.
fn variables(record: &Json) -> Result<Map<String, Json>> {
    let mut variables = match record.get("chat_template_kwargs") {
        None | Some(Json::Null) => Map::new(),
        Some(Json::Object(fields)) => fields.clone(),
        Some(_) => return Err(Error::Input("`chat_template_kwargs` must be an object".into())),
    };
    for name in ["tools", "documents"] {
        let list = match record.get(name) {
            None | Some(Json::Null) => continue,
            Some(Json::String(text)) => serde_json::from_str(text).unwrap_or(Json::Null),
            Some(list) => list.clone(),
        };
        if !list.is_array() {
            return Err(Error::Input(format!("`{name}` must be a list of objects, or JSON of one")));
        }
        variables.entry(name).or_insert(list);
    }
    Ok(variables)
}

/// Where an answer ends in `whole` that begins at `start`; `closed` is the conversation up to and with it. Templates that leave
/// out the reasoning of earlier answers write it differently in both: then it is what `closed` ends with and `whole` goes on with.
fn answer_end(closed: &[i32], whole: &[i32], start: usize) -> usize {
    let shared = same(closed, whole);
    if shared == closed.len() || shared < start {
        return shared;
    }
    let (answer, rest) = (&closed[start..], &whole[start..]);
    let kept = (1..=answer.len().min(rest.len())).rev().find(|n| answer.ends_with(&rest[..*n])).unwrap_or(0);
    shared.max(start + kept)
}

/// How many ids two beginnings share.
fn same(a: &[i32], b: &[i32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const TEMPLATE: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

    fn encoder<'a>(aim: &str, tokenizer: &'a Tokenizer, template: &'a ChatTemplate) -> Encoder<'a> {
        Encoder::new((tokenizer, template), (Aim::parse(aim).expect("valid"), 60, Mode::Mean))
    }

    /// What a row learns, as text.
    fn learned(tokenizer: &Tokenizer, row: &Row) -> String {
        let ids: Vec<i32> = row.labels.iter().copied().filter(|label| *label >= 0).collect();
        tokenizer.decode(&ids).expect("known")
    }

    #[test]
    fn answers_alone_are_learned() {
        let text = "the cat sat on the mat and the dog ran away from it <user> <assistant> </s> over and over again\n";
        let tokenizer = Tokenizer::train([text].into_iter(), 270).expect("trains");
        let template = ChatTemplate::of(TEMPLATE).expect("valid");
        let mut chat = encoder("next", &tokenizer, &template);
        let mut check = |record: Json, expected: &[&str]| {
            let rows = chat.rows(&record).unwrap_or_else(|e| panic!("{e}")).expect("learned");
            assert_eq!(rows.iter().map(|row| learned(&tokenizer, row)).collect::<Vec<_>>(), expected);
            for row in &rows {
                assert_eq!(row.ids.len(), row.labels.len());
                for i in 1..row.ids.len() {
                    assert!(row.labels[i - 1] == -100 || row.labels[i - 1] == row.ids[i]);
                }
            }
        };
        let say = |role: &str, text: &str| json!({ "role": role, "content": text });
        check(
            json!({ "messages": [say("user", "the cat"), say("assistant", "sat"), say("user", "on"), say("assistant", "it")] }),
            &["sat</s>it</s>"],
        );
        let end = tokenizer.end().map_or(String::new(), |id| tokenizer.decode(&[id]).unwrap_or_default());
        check(json!({ "prompt": "the cat", "completion": " sat" }), &[&format!(" sat{end}")]);
        let mut pairs = encoder("dpo", &tokenizer, &template);
        let record = json!({ "chosen": [say("user", "the cat"), say("assistant", "sat")],
                             "rejected": [say("user", "the cat"), say("assistant", "ran away")] });
        let rows = pairs.rows(&record).expect("fits").expect("learned");
        assert_eq!([learned(&tokenizer, &rows[0]), learned(&tokenizer, &rows[1])], ["sat</s>", "ran away</s>"]);
        let record = json!({ "prompt": "the cat", "chosen": " sat", "rejected": " ran" });
        let rows = pairs.rows(&record).expect("fits").expect("learned");
        assert_eq!(rows[0].ids[..2], rows[1].ids[..2]);
        // What does not fit into a sequence is left out; what is no example says so.
        assert_eq!(chat.rows(&json!({ "prompt": "cat ".repeat(80), "completion": "x" })).expect("fits"), None);
        for (record, word) in [
            (json!({ "text": "x" }), "messages"),
            (json!({ "messages": [say("user", "x")] }), "nothing to learn"),
            (json!({ "prompt": 3, "completion": "x" }), "completion"),
        ] {
            let error = chat.rows(&record).expect_err("wrong").to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(pairs.rows(&json!({ "chosen": "x" })).is_err());
    }

    /// Cases of `golden/examples.py`: tokens and labels that TRL makes of records, with merges across the end of the prompt.
    /// `TENSORLOOM_EXAMPLES` names a further file.
    #[test]
    fn tokens_and_labels_are_those_of_trl() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/examples.json");
        let (same, crossed, without_marks) = compare_with_trl(&golden);
        assert!(same >= 500 && crossed >= 50 && without_marks >= 100, "{same} {crossed} {without_marks}");
        if let Ok(further) = std::env::var("TENSORLOOM_EXAMPLES") {
            println!("{} further cases", compare_with_trl(Path::new(&further)).0);
        }
    }

    /// How many rows were compared, how many prompts were crossed, and how many templates had their marks taken out.
    fn compare_with_trl(path: &Path) -> (usize, u64, usize) {
        let golden: Json = serde_json::from_slice(&std::fs::read(path).expect("golden")).expect("JSON");
        let seq = golden["seq"].as_u64().expect("a length") as usize;
        let numbers = |row: &Json| -> Vec<i32> { serde_json::from_value(row.clone()).expect("numbers") };
        let tokenizer = |(name, json): (&String, &Json)| {
            let folder = std::env::temp_dir().join(format!("tensorloom-examples-{}", std::process::id()));
            std::fs::create_dir_all(&folder).expect("a folder");
            let config =
                json!({ "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>" });
            for (file, json) in [("tokenizer.json", json), ("tokenizer_config.json", &config)] {
                std::fs::write(folder.join(file), json.to_string()).expect("written");
            }
            let made = Tokenizer::of_dir(&folder).expect("read");
            std::fs::remove_dir_all(&folder).expect("removed");
            (name.clone(), made)
        };
        let tokenizers: BTreeMap<String, Tokenizer> =
            golden["tokenizers"].as_object().expect("tokenizers").iter().map(tokenizer).collect();
        let (mut same, mut crossed, mut without_marks, mut wrong) = (0, 0, 0, Vec::new());
        for (n, case) in golden["cases"].as_array().expect("cases").iter().enumerate() {
            let tokenizer = &tokenizers[case["tokenizer"].as_str().expect("a name")];
            let source = case["template"].as_str().expect("a template");
            let record = &case["record"];
            let aim = if record.get("chosen").is_some() { "dpo" } else { "next" };
            let wanted: Vec<Row> = case["rows"]
                .as_array()
                .expect("rows")
                .iter()
                .map(|row| (numbers(&row["tokens"]), numbers(&row["labels"])))
                .map(|(ids, labels)| Row { ids: ids[..ids.len() - 1].to_vec(), labels: labels[1..].to_vec() })
                .collect();
            let learns = wanted.iter().all(|row| row.labels.iter().any(|label| *label >= 0));
            let plain = source.replace("{% generation %}", "").replace("{% endgeneration %}", "");
            // Without marks an answer is what follows the open conversation, which has to be written as the whole one is.
            let alike = source.contains("<|assistant|>\n{% endif %}");
            for source in [source, &plain].into_iter().take(1 + usize::from(alike)) {
                let template = ChatTemplate::of(source).expect("valid");
                let mut encoder = encoder(aim, tokenizer, &template);
                encoder.seq = seq - 1;
                let found = encoder.rows(record).unwrap_or_else(|e| panic!("case {n}: {e}"));
                match found == learns.then(|| wanted.clone()) {
                    true => (same, crossed) = (same + 1, crossed + encoder.crossed),
                    false => wrong.push(format!("case {n}: {found:?}, expected {wanted:?}: {record}, {source:?}")),
                }
                without_marks += usize::from(source == plain);
            }
        }
        assert!(wrong.is_empty(), "{} cases differ, such as {}", wrong.len(), wrong.join("\n"));
        (same, crossed, without_marks)
    }

    /// Every answer is learned where a template writes the last one, or those behind the last question, with its reasoning.
    #[test]
    fn earlier_answers_without_their_reasoning_are_learned() {
        let text = "the cat sat on the mat and the dog ran away from it <user> <assistant> <thought> </s> over again\n";
        let tokenizer = Tokenizer::train([text].into_iter(), 270).expect("trains");
        let say = |role: &str, text: &str| json!({ "role": role, "content": text });
        let talk = [
            say("user", "the cat"),
            say("assistant", "sat"),
            say("user", "on"),
            say("assistant", "it"),
            say("user", "again"),
        ];
        let head = "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}\
                    {% for m in messages %}<{{ m.role }}>";
        let tail = "{{ m.content }}</s>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
        for (condition, talk, wanted) in [
            ("loop.last", &talk[..4], "sat</s>\n<thought>it</s>\n"),
            ("loop.index0 > ns.last", &talk[..4], "sat</s>\n<thought>it</s>\n"),
            ("loop.index0 > ns.last", &talk[..5], "sat</s>\nit</s>\n"),
            ("false", &talk[..5], "sat</s>\nit</s>\n"),
            ("true", &talk[..5], "<thought>sat</s>\n<thought>it</s>\n"),
        ] {
            let thought = format!("{{% if m.role == 'assistant' and {condition} %}}<thought>{{% endif %}}");
            let template = ChatTemplate::of(&format!("{head}{thought}{tail}")).expect("valid");
            let mut chat = encoder("next", &tokenizer, &template);
            chat.seq = 500;
            let rows = chat.rows(&json!({ "messages": talk })).expect("fits").expect("learned");
            assert_eq!(learned(&tokenizer, &rows[0]), wanted, "{condition}");
        }
    }

    /// Tools of records reach the template, and labels follow its `{% generation %}` blocks.
    #[test]
    fn templates_get_tools_and_mark_answers() {
        let text =
            "the cat sat on the mat [{\"name\": \"f\"}] and the dog ran away <user> <assistant> </s> over again é 😀\n";
        let tokenizer = Tokenizer::train([text].into_iter(), 262).expect("trains");
        let marked = "{{ tools | tojson }}{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}\
                      {{ m.content }}</s>{% endgeneration %}{% else %}{{ m.content }}</s>{% endif %}{% endfor %}";
        let say = |role: &str, text: &str| json!({ "role": role, "content": text });
        let talk =
            json!([say("user", "é 😀"), say("assistant", "é sat 😀"), say("user", "on"), say("assistant", "it")]);
        let in_macro = "{{ tools | tojson }}{% macro said(m) %}{% generation %}{{ m.content }}</s>{% endgeneration %}{% endmacro %}\
                        {% for m in messages %}<{{ m.role }}>{{ said(m) }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
        let tools = json!([{ "name": "f" }]);
        for source in [marked, in_macro] {
            let template = ChatTemplate::of(source).expect("valid");
            let mut chat = encoder("next", &tokenizer, &template);
            chat.seq = 500;
            for tools in [tools.clone(), Json::String(tools.to_string())] {
                let rows = chat.rows(&json!({ "messages": talk, "tools": tools })).expect("fits").expect("learned");
                assert_eq!(learned(&tokenizer, &rows[0]), "é sat 😀</s>it</s>");
                let shown = tokenizer.decode(&rows[0].ids).expect("known");
                assert!(shown.starts_with("[{\"name\": \"f\"}]<user>é 😀</s>"), "{shown}");
            }
            let error = chat.rows(&json!({ "messages": talk, "tools": "x" })).expect_err("no list").to_string();
            assert!(error.contains("tools"), "{error}");
        }
        let template =
            ChatTemplate::of("{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% endfor %}").expect("valid");
        let mut pairs = encoder("dpo", &tokenizer, &template);
        pairs.seq = 500;
        let record = json!({ "tools": tools, "chosen": [say("user", "the cat"), say("assistant", "sat")],
                             "rejected": [say("user", "the cat"), say("assistant", "ran")] });
        let rows = pairs.rows(&record).expect("fits").expect("learned");
        for row in &rows {
            assert!(tokenizer.decode(&row.ids).expect("known").starts_with("[{\"name\": \"f\"}]the cat"));
        }
    }

    #[test]
    fn classes_have_numbers_or_names() {
        let tokenizer = Tokenizer::train(["a b c d e f"].into_iter(), 258).expect("trains");
        let template = ChatTemplate::of(TEMPLATE).expect("valid");
        let mut named = encoder("classify", &tokenizer, &template);
        let mut class = |label: Json| {
            let rows = named.rows(&json!({ "text": "a b", "label": label })).expect("fits").expect("learned");
            *rows[0].labels.last().expect("ids")
        };
        assert_eq!([class("good".into()), class("bad".into()), class("good".into())], [0, 1, 0]);
        assert_eq!(named.classes, ["good", "bad"]);
        let mut counted = encoder("classify,classes=3", &tokenizer, &template);
        assert!(counted.rows(&json!({ "text": "a", "label": 2 })).is_ok());
        assert!(counted.rows(&json!({ "text": "a", "label": 3 })).is_err());
    }
}
