//! Chat templates: messages to the text that a model was trained to go on with.
//!
//! Templates are those of HuggingFace directories, in Jinja: `chat_template.jinja` and `additional_chat_templates/*.jinja`, or the
//! field `chat_template` of `tokenizer_config.json`. A directory without one gets a plain one. They get the variables that
//! transformers gives them.

use crate::chat_files::{self, DEFAULT};
use crate::error::{Error, Result};
use crate::jinja;
use crate::special_tokens::SpecialTokens;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// For models that bring no template: each message behind the name of who says it.
const PLAIN: &str = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}\
                     {% if add_generation_prompt %}assistant:{% endif %}";

/// The template for messages with tools.
const TOOLS: &str = "tool_use";

/// Names of what a message's reasoning is passed under. The first is the one that templates read.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// A template, or several by name, and the tokens that it may name.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    path: Option<PathBuf>,
    sources: BTreeMap<String, String>,
    tokens: Vec<(String, String)>,
}

impl ChatTemplate {
    /// The template of a HuggingFace directory, of a GGUF file, or the plain one. There can be several by name: that for tools is used
    /// for messages with tools.
    pub fn of_dir(dir: &Path) -> Result<ChatTemplate> {
        let mut template = ChatTemplate::plain();
        template.tokens = SpecialTokens::of_dir(dir, None)?.named.into_iter().collect();
        let found = chat_files::templates(dir)?;
        if !found.is_empty() {
            (template.path, template.sources) = (Some(dir.to_path_buf()), found);
        }
        template.check()
    }

    /// The template of models that bring none.
    pub(crate) fn plain() -> ChatTemplate {
        let sources = [(DEFAULT.to_string(), PLAIN.to_string())].into();
        ChatTemplate { path: None, sources, tokens: Vec::new() }
    }

    /// A template from its text.
    pub fn of(source: &str) -> Result<ChatTemplate> {
        let sources = [(DEFAULT.to_string(), source.to_string())].into();
        ChatTemplate { path: None, sources, tokens: Vec::new() }.check()
    }

    /// A number that changes when the template does.
    pub(crate) fn fingerprint(&self) -> u32 {
        crc32fast::hash(format!("{:?} {:?}", self.sources, self.tokens).as_bytes())
    }

    /// Whether the model brought it.
    pub fn is_own(&self) -> bool {
        self.path.is_some()
    }

    fn check(self) -> Result<ChatTemplate> {
        for source in self.sources.values() {
            jinja::check(source).map_err(|e| self.fault(&e))?;
        }
        Ok(self)
    }

    fn fault(&self, fault: &jinja::Fault) -> Error {
        let line = if fault.line > 0 { format!(", line {}", fault.line) } else { String::new() };
        let what = format!("the chat template{line}: {}", fault.what);
        match &self.path {
            Some(path) => Error::file(path, what),
            None => Error::Input(what),
        }
    }

    /// The template for messages with these variables.
    fn source(&self, further: &Map<String, Json>) -> Result<&String> {
        let tools = further.get("tools").is_some_and(|tools| !tools.is_null());
        let special = self.sources.get(TOOLS).filter(|_| tools);
        special.or_else(|| self.sources.get(DEFAULT)).ok_or_else(|| {
            let names: Vec<&str> = self.sources.keys().map(String::as_str).collect();
            let what = format!("none of the chat templates {names:?} is named `{DEFAULT}`: rename one");
            self.fault(&jinja::Fault { line: 0, what })
        })
    }

    /// The text of a conversation, up to where the model is to go on if `open`. Messages are objects with `role` and `content`;
    /// `further` are variables that the template may know: `tools` (a list of functions' schemas), `documents`, others.
    pub fn render(&self, messages: &[Json], open: bool, further: &Map<String, Json>) -> Result<String> {
        Ok(self.render_marked(messages, open, further)?.text)
    }

    /// The same with the parts that the template marks as written by the assistant.
    pub(crate) fn render_marked(
        &self,
        messages: &[Json],
        open: bool,
        further: &Map<String, Json>,
    ) -> Result<jinja::Rendered> {
        let mut variables = Map::new();
        for name in ["tools", "documents"] {
            variables.insert(name.into(), Json::Null);
        }
        variables.extend(self.tokens.iter().map(|(name, token)| (name.clone(), token.as_str().into())));
        variables.extend(further.iter().map(|(name, value)| (name.clone(), value.clone())));
        variables.insert("messages".into(), messages.iter().map(plain_message).collect());
        variables.insert("add_generation_prompt".into(), open.into());
        jinja::render(self.source(further)?, &variables).map_err(|e| self.fault(&e))
    }
}

/// A message as templates get it from transformers: its reasoning under every name. Fields that are null stay null.
fn plain_message(message: &Json) -> Json {
    let Json::Object(fields) = message else { return message.clone() };
    let mut fields = fields.clone();
    let reasoning = REASONING.iter().find_map(|name| fields.get(*name).filter(|value| !value.is_null()).cloned());
    if let Some(reasoning) = reasoning {
        let mut named: Map<String, Json> = [("thinking".to_string(), reasoning.clone())].into_iter().collect();
        named.append(&mut fields);
        named.insert("reasoning_content".into(), reasoning);
        fields = named;
    }
    Json::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rendered(source: &str, messages: Json, open: bool) -> Result<String> {
        let messages = messages.as_array().cloned().unwrap_or_default();
        ChatTemplate::of(source)?.render(&messages, open, &Map::new())
    }

    #[test]
    fn the_usual_constructs_work() {
        let talk = json!([{ "role": "system", "content": " Be brief. " }, { "role": "user", "content": "Hi" }]);
        let chatml = "{% for message in messages %}\n{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}\n{% endfor %}\n{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
        let want =
            "<|im_start|>system\n Be brief. <|im_end|>\n\n<|im_start|>user\nHi<|im_end|>\n\n<|im_start|>assistant\n";
        assert_eq!(rendered(chatml, talk.clone(), true).expect("renders"), want);
        assert_eq!(rendered(PLAIN, talk, true).expect("renders"), "system:  Be brief. \nuser: Hi\nassistant:");
    }

    #[test]
    fn faults_are_told() {
        let refused =
            rendered("a\n{{ raise_exception('roles must alternate') }}", json!([]), true).expect_err("raised");
        assert_eq!(refused.to_string(), "the chat template, line 2: roles must alternate");
        assert!(ChatTemplate::of("{% if %}").expect_err("no condition").to_string().contains("line 1"));
    }

    /// Cases of `golden/chat.py`: the same text and the same marks, or an error on both sides. `TENSORLOOM_CHAT_CASES` names a
    /// further file.
    #[test]
    fn templates_are_rendered_as_by_transformers() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/chat/cases.json");
        let further = std::env::var("TENSORLOOM_CHAT_CASES").ok().map(PathBuf::from);
        for path in [golden].into_iter().chain(further) {
            let data = std::fs::read_to_string(&path).expect("golden data");
            let data: Json = serde_json::from_str(&data).expect("golden data");
            let tokens = data["tokens"].as_object().expect("tokens").iter();
            let tokens: Vec<_> =
                tokens.map(|(name, text)| (name.clone(), text.as_str().expect("text").into())).collect();
            let (mut same, mut refused) = (0, 0);
            for case in data["cases"].as_array().expect("cases") {
                let name = format!("{}, {}", case["template"], case["conversation"]);
                let source =
                    data["templates"][case["template"].as_str().expect("a name")].as_str().expect("a template");
                let mut asked = data["conversations"][case["conversation"].as_str().expect("a name")].clone();
                let asked = asked.as_object_mut().expect("fields");
                let messages = asked.remove("messages").expect("messages");
                let open = asked.remove("add_generation_prompt").is_some_and(|open| open == true);
                let template = ChatTemplate { tokens: tokens.clone(), ..ChatTemplate::of(source).expect("parses") };
                let found = template.render_marked(messages.as_array().expect("a list"), open, asked);
                match (found, case["text"].as_str()) {
                    (Ok(found), Some(text)) => {
                        assert_eq!(found.text, text, "{name}");
                        let marks: Vec<[usize; 2]> =
                            found.generated.iter().map(|part| [part.start, part.end]).collect();
                        assert!(found.lost || json!(marks) == case["generated"], "{name}: {marks:?}");
                        same += 1;
                    }
                    (Err(_), None) => refused += 1,
                    (Ok(found), None) => panic!("{name}: found {:?}, expected {}", found.text, case["error"]),
                    (Err(error), Some(_)) => panic!("{name}: {error}"),
                }
            }
            assert!(same > 5 * refused, "{same} {refused}");
        }
    }

    /// Templates by name, tokens and fields of messages, as transformers has them.
    #[test]
    fn directories_have_templates_by_name() {
        let dir = std::env::temp_dir().join(format!("tensorloom-chat-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("additional_chat_templates")).expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).expect("written");
        let config = json!({
            "bos_token": { "content": "<s>", "special": true }, "eos_token": "</s>", "mask_token": "<mask>", "cls_token": null,
            "extra_special_tokens": { "image_token": "<image>" },
            "chat_template": [
                { "name": "default", "template": "plain {{ bos_token }}{{ mask_token }}{{ image_token }}{{ cls_token is defined }}" },
                { "name": "tool_use", "template": "{{ tools | tojson }}" },
            ],
        });
        write("tokenizer_config.json", &config.to_string());
        let of = |further: Json| {
            let further = further.as_object().cloned().unwrap_or_default();
            ChatTemplate::of_dir(&dir).expect("read").render(&[json!({ "role": "user" })], false, &further)
        };
        assert_eq!(of(json!({})).expect("renders"), "plain <s><mask><image>False");
        assert_eq!(of(json!({ "tools": [{ "b": 1, "a": "<é>" }] })).expect("renders"), r#"[{"b": 1, "a": "<é>"}]"#);
        assert_eq!(of(json!({ "tools": null, "bos_token": "x" })).expect("renders"), "plain x<mask><image>False");
        // Files come before what the configuration says.
        write("additional_chat_templates/rag.jinja", "rag");
        assert!(of(json!({})).expect_err("no default").to_string().contains("default"));
        write("chat_template.jinja", "file {{ tools is none }} {{ documents is none }}");
        assert_eq!(of(json!({ "tools": [] })).expect("renders"), "file False True");
        std::fs::remove_dir_all(&dir).expect("removed");
        let fields =
            "{% for m in messages %}{{ m.content is defined }} {{ m.reasoning_content }} {{ m.thinking }};{% endfor %}";
        let talk =
            json!([{ "role": "assistant", "content": null, "reasoning": "why" }, { "role": "user", "content": "x" }]);
        assert_eq!(rendered(fields, talk, false).expect("renders"), "True why why;True  ;");
        let talk = json!([{ "role": "assistant", "content": null, "thinking": null, "reasoning": "why" }]);
        let fields =
            "{% for m in messages %}{{ m.content | trim }} {{ m.thinking }} {{ m.reasoning_content }}{% endfor %}";
        assert_eq!(rendered(fields, talk, false).expect("renders"), "None None why");
    }
}
