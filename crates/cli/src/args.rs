//! Reading the command line: words, flags, options with values.

use lang::suggest::closest;

/// An option: its name without dashes, and whether a value follows.
pub(crate) type Flag = (&'static str, bool);

/// Wrong use: one line that says what, and what to do instead.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

/// A parsed command line.
pub(crate) struct Args {
    /// Words that are no options.
    pub(crate) words: Vec<String>,
    options: Vec<(&'static str, String)>,
    about: &'static str,
}

impl Args {
    pub(crate) fn parse(words: &[String], known: &[Flag], about: &'static str) -> Result<Args, Usage> {
        let mut args = Args { words: Vec::new(), options: Vec::new(), about };
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let Some(option) = word.strip_prefix("--") else {
                args.words.push(word.clone());
                continue;
            };
            let (name, inline) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (option, None),
            };
            let Some(&(name, takes_value)) = known.iter().find(|(known, _)| *known == name) else {
                let close = closest(name, known.iter().map(|(name, _)| *name));
                let remedy = close.map_or(about.to_string(), |close| format!("did you mean `--{close}`?"));
                return Err(Usage(format!("unknown option `--{name}`: {remedy}")));
            };
            let value = match (takes_value, inline) {
                (true, Some(value)) => value,
                (true, None) => match rest.next() {
                    Some(value) => value.clone(),
                    None => return Err(Usage(format!("`--{name}` needs a value: {about}"))),
                },
                (false, None) => String::new(),
                (false, Some(_)) => return Err(Usage(format!("`--{name}` takes no value: {about}"))),
            };
            args.options.push((name, value));
        }
        Ok(args)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(option, _)| *option == name)
    }

    /// The last value of an option.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.values(name).last()
    }

    /// All values of an option that may be repeated.
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let given = self.options.iter().filter(move |(option, _)| *option == name);
        given.map(|(_, value)| value.as_str())
    }

    /// A value that must be there.
    pub(crate) fn required(&self, name: &str) -> Result<&str, Usage> {
        let value = self.value(name).filter(|value| !value.is_empty());
        value.ok_or_else(|| Usage(format!("`--{name}` is missing: {}", self.about)))
    }

    pub(crate) fn number(&self, name: &str, default: usize) -> Result<usize, Usage> {
        match self.value(name) {
            None => Ok(default),
            Some(text) => match text.parse() {
                Ok(number) if number > 0 => Ok(number),
                _ => Err(Usage(format!("`--{name}` needs a positive number, got `{text}`"))),
            },
        }
    }

    /// A positive number that is not absurd.
    pub(crate) fn at_most(&self, name: &str, default: usize, most: usize) -> Result<usize, Usage> {
        match self.number(name, default)? {
            n if n > most => Err(Usage(format!("`--{name} {n}` is too much: at most {most}"))),
            n => Ok(n),
        }
    }

    /// The only word.
    pub(crate) fn word(&self, what: &str) -> Result<&str, Usage> {
        match &self.words[..] {
            [word] => Ok(word),
            [] => Err(Usage(format!("{what} is missing: {}", self.about))),
            [_, extra, ..] => Err(Usage(format!("unexpected `{extra}`: {}", self.about))),
        }
    }

    /// Rows of ids, one for each time the option was given.
    pub(crate) fn ids(&self, name: &str) -> Result<Vec<Vec<i32>>, Usage> {
        self.values(name)
            .map(|row| {
                let ids = row.split(',').map(|id| {
                    id.trim()
                        .parse::<i32>()
                        .map_err(|_| Usage(format!("`--{name}` needs ids such as 1,5,7, got `{row}`")))
                });
                ids.collect()
            })
            .collect()
    }
}
