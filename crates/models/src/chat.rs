//! Chat templates: messages to the text that a model was trained to go on with.
//!
//! Templates are those of HuggingFace directories, in Jinja: `chat_template.jinja`, or the field `chat_template` of
//! `tokenizer_config.json`. A directory without one gets a plain one.

use crate::chat_files;
use crate::error::{Error, Result};
use crate::special_tokens::SpecialTokens;
use minijinja::{Environment, ErrorKind, Value};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};

/// For models that bring no template: each message behind the name of who says it.
const PLAIN: &str = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}\
                     {% if add_generation_prompt %}assistant:{% endif %}";

/// Steps that a template may take for a conversation.
const FUEL: u64 = 10_000_000;

/// A template and the tokens that it may name.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    path: Option<PathBuf>,
    source: String,
    tokens: Vec<(String, String)>,
}

impl ChatTemplate {
    /// The template of a HuggingFace directory, of a GGUF file, or the plain one.
    pub fn of_dir(dir: &Path) -> Result<ChatTemplate> {
        let mut templates = chat_files::templates(dir)?;
        let mut template = ChatTemplate::plain();
        template.tokens = SpecialTokens::of_dir(dir, None)?.named.into_iter().collect();
        let first = templates.keys().next().cloned();
        let own = templates.remove(chat_files::DEFAULT).or_else(|| templates.remove(&first?));
        if let Some(source) = own {
            (template.path, template.source) = (Some(dir.to_path_buf()), source);
        }
        template.check()
    }

    /// The template of models that bring none.
    pub(crate) fn plain() -> ChatTemplate {
        ChatTemplate { path: None, source: PLAIN.to_string(), tokens: Vec::new() }
    }

    /// A template from its text.
    pub fn of(source: &str) -> Result<ChatTemplate> {
        ChatTemplate { path: None, source: source.to_string(), tokens: Vec::new() }.check()
    }

    /// A number that changes when the template does.
    pub(crate) fn fingerprint(&self) -> u32 {
        crc32fast::hash(format!("{:?} {:?}", self.source, self.tokens).as_bytes())
    }

    /// Whether the model brought it.
    pub fn is_own(&self) -> bool {
        self.path.is_some()
    }

    fn check(self) -> Result<ChatTemplate> {
        self.environment().map(|_| ()).map_err(|e| self.fault(&e))?;
        Ok(self)
    }

    fn fault(&self, error: &minijinja::Error) -> Error {
        let line = error.line().map_or(String::new(), |line| format!(", line {line}"));
        let what = error.detail().map_or_else(|| error.kind().to_string(), String::from);
        let what = format!("the chat template{line}: {what}");
        match &self.path {
            Some(path) => Error::file(path, what),
            None => Error::Input(what),
        }
    }

    fn environment(&self) -> std::result::Result<Environment<'_>, minijinja::Error> {
        let mut env = Environment::new();
        // As transformers reads them.
        env.set_trim_blocks(true);
        env.set_lstrip_blocks(true);
        env.set_fuel(Some(FUEL));
        env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        env.add_function("raise_exception", |message: String| -> std::result::Result<String, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        env.add_function("strftime_now", |format: String| date(&format));
        env.add_template("chat", &self.source)?;
        Ok(env)
    }

    /// The text of a conversation, up to where the model is to go on if `open`. Messages are objects with `role` and `content`;
    /// `further` are variables that the template may know.
    pub fn render(&self, messages: &[Json], open: bool, further: &serde_json::Map<String, Json>) -> Result<String> {
        let mut variables = further.clone();
        for (name, token) in &self.tokens {
            variables.insert(name.clone(), token.as_str().into());
        }
        variables.insert("messages".into(), Json::Array(messages.to_vec()));
        variables.insert("add_generation_prompt".into(), open.into());
        let rendered = self.environment().and_then(|env| {
            let template = env.get_template("chat")?;
            template.render(Value::from_serialize(&variables))
        });
        rendered.map_err(|e| self.fault(&e))
    }
}

/// Today, by the few directives that templates use.
fn date(format: &str) -> String {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (year, month, day) = civil((seconds / 86_400) as i64);
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let name = MONTHS[month - 1];
    let text = format.replace("%Y", &year.to_string()).replace("%m", &format!("{month:02}"));
    let text = text.replace("%d", &format!("{day:02}")).replace("%B", name).replace("%b", &name[..3]);
    text.replace("%H", &format!("{:02}", seconds / 3600 % 24)).replace("%M", &format!("{:02}", seconds / 60 % 60))
}

/// Year, month and day of a number of days since 1970, in the proleptic Gregorian calendar.
fn civil(days: i64) -> (i64, usize, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Years begin in March here.
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month as usize, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rendered(source: &str, messages: Json, open: bool) -> Result<String> {
        let messages = messages.as_array().cloned().unwrap_or_default();
        ChatTemplate::of(source)?.render(&messages, open, &serde_json::Map::new())
    }

    #[test]
    fn the_usual_constructs_work() {
        let talk = json!([{ "role": "system", "content": " Be brief. " }, { "role": "user", "content": "Hi" }]);
        let chatml = "{% for message in messages %}\n{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}\n{% endfor %}\n{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
        let want =
            "<|im_start|>system\n Be brief. <|im_end|>\n\n<|im_start|>user\nHi<|im_end|>\n\n<|im_start|>assistant\n";
        assert_eq!(rendered(chatml, talk.clone(), true).expect("renders"), want);
        // Methods of Python, slices, namespaces, loops that are left, macros, JSON.
        let python = "{%- if messages[0].role == 'system' %}{% set first = messages[0].content.strip() %}{% set loop_messages = messages[1:] %}{% endif -%}\
            {%- set ns = namespace(n=0) -%}{%- macro shown(m) -%}[{{ m.content | trim }}]{%- endmacro -%}\
            {%- for m in loop_messages -%}{%- set ns.n = ns.n + 1 -%}{%- if m.role.startswith('x') %}{% break %}{% endif -%}{{ shown(m) }}{%- endfor -%}\
            {{ first }}{{ ns.n }}{{ {'a': 1} | tojson }}";
        assert_eq!(rendered(python, talk.clone(), true).expect("renders"), "[Hi]Be brief.1{\"a\":1}");
        assert_eq!(rendered(PLAIN, talk, true).expect("renders"), "system:  Be brief. \nuser: Hi\nassistant:");
    }

    #[test]
    fn faults_are_told() {
        let refused = rendered("{{ raise_exception('roles must alternate') }}", json!([]), true).expect_err("raised");
        assert!(refused.to_string().contains("roles must alternate"), "{refused}");
        assert!(ChatTemplate::of("{% if %}").expect_err("no condition").to_string().contains("line 1"));
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
        assert!(rendered(endless, json!([]), true).is_err());
    }

    #[test]
    fn days_are_dates() {
        for (days, date) in [(0, (1970, 1, 1)), (59, (1970, 3, 1)), (11_016, (2000, 2, 29)), (19_723, (2024, 1, 1))] {
            assert_eq!(civil(days), date);
        }
    }
}
