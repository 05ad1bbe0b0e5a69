//! Generates a corpus of short stories from a seeded grammar, to train a model without a data set.
//!
//! A story has a hero, a friend, a place and a thing, one of several plots, and a wording for every sentence. Names, pronouns and
//! things are consistent within a story, so a model can learn more than word bigrams.

use crate::random::SplitMix64;
use crate::tokenizer::END_OF_TEXT;
use std::fmt::Write;

struct Hero {
    name: &'static str,
    kind: Option<&'static str>,
    /// The pronouns: he, him, his.
    words: [&'static str; 3],
}

const SHE: [&str; 3] = ["she", "her", "her"];
const HE: [&str; 3] = ["he", "him", "his"];

const GIRLS: &[&str] = &["Lily", "Mia", "Anna", "Zoe", "Ruth", "Nora", "Ella", "Ivy", "Clara", "June"];
const BOYS: &[&str] = &["Tom", "Ben", "Max", "Sam", "Leo", "Finn", "Jack", "Noah", "Omar", "Hugo"];
const ANIMALS: &[&str] =
    &["cat", "dog", "fox", "bear", "rabbit", "mouse", "owl", "duck", "frog", "hedgehog", "squirrel", "goat"];
const TRAITS: &[&str] = &[
    "kind", "brave", "curious", "shy", "clever", "cheerful", "quiet", "patient", "proud", "careful", "playful", "lazy",
];
const PLACES: &[&str] = &[
    "the forest",
    "the park",
    "the garden",
    "the beach",
    "the village",
    "the market",
    "the farm",
    "the old mill",
    "the lake",
    "the library",
    "the castle",
    "the mountain",
];
const THINGS: &[&str] = &[
    "ball", "kite", "book", "lantern", "drum", "boat", "hat", "key", "shell", "bell", "map", "coin", "ribbon",
    "button", "whistle", "blanket",
];
const LOOKS: &[&str] =
    &["red", "blue", "green", "golden", "tiny", "shiny", "old", "wooden", "round", "yellow", "silver", "soft"];
const FOODS: &[&str] = &[
    "bread", "soup", "apples", "honey", "cake", "berries", "cheese", "pancakes", "carrots", "cookies", "plums",
    "porridge",
];
const WEATHER: &[&str] = &["sunny", "rainy", "windy", "cold", "warm", "foggy", "snowy", "bright"];
const TIMES: &[&str] =
    &["One day", "One morning", "One evening", "Last summer", "On Monday", "One afternoon", "In the spring"];
const HIDING: &[&str] = &[
    "under a bush",
    "behind a rock",
    "in a tree",
    "under the bridge",
    "inside a barrel",
    "behind the door",
    "in the tall grass",
    "next to the well",
    "under a chair",
    "in a basket",
];
const FEELINGS: &[(&str, &str)] = &[
    ("happy", "smiled"),
    ("proud", "stood up tall"),
    ("glad", "laughed"),
    ("excited", "clapped"),
    ("thankful", "nodded"),
];
const SADNESS: &[(&str, &str)] = &[
    ("sad", "began to cry"),
    ("worried", "could not sit still"),
    ("lonely", "sighed"),
    ("upset", "looked at the ground"),
];
const LESSONS: &[&str] = &[
    "sharing makes everything better",
    "it is good to ask for help",
    "being patient pays off",
    "friends look after each other",
    "telling the truth is always best",
    "even small helpers can do big things",
    "it is fine to make mistakes",
    "you should never give up",
    "kind words cost nothing",
    "a gift is best when it is shared",
];

/// Generates stories separated by an end token until the text has `bytes` bytes.
pub fn write_stories(seed: u64, bytes: usize) -> String {
    let mut random = SplitMix64::new(seed, 4);
    let mut text = String::with_capacity(bytes + 2048);
    while text.len() < bytes {
        story(&mut random, &mut text);
        let _ = write!(text, "\n{END_OF_TEXT}\n");
    }
    text
}

fn hero(random: &mut SplitMix64, other: Option<&str>) -> Hero {
    loop {
        let (names, words) = if random.below(2) == 0 { (GIRLS, SHE) } else { (BOYS, HE) };
        let name = random.choice(names);
        if Some(name) == other {
            continue;
        }
        let kind = (random.below(3) == 0).then(|| random.choice(ANIMALS));
        return Hero { name, kind, words };
    }
}

/// The entities of a story.
struct StoryContext {
    hero: Hero,
    friend: Hero,
    nature: &'static str,
    place: &'static str,
    look: &'static str,
    thing: &'static str,
    food: &'static str,
}

impl StoryContext {
    /// Fills in the `{..}` slots of a sentence. A capitalized slot name gives capitalized text.
    /// An initial pronoun may be replaced by the name.
    fn say(&self, random: &mut SplitMix64, text: &mut String, sentence: &str) {
        let mut rest = sentence;
        while let Some(open) = rest.find('{') {
            let Some(close) = rest[open..].find('}') else { break };
            text.push_str(&rest[..open]);
            let slot = &rest[open + 1..open + close];
            let word = match slot {
                "He" if random.below(2) == 0 => self.hero.name,
                _ => self.word(&slot.to_lowercase()),
            };
            match slot.starts_with(char::is_uppercase) {
                true => text.push_str(&capital(word)),
                false => text.push_str(word),
            }
            rest = &rest[open + close + 1..];
        }
        text.push_str(rest);
        text.push(' ');
    }

    fn word(&self, slot: &str) -> &'static str {
        match slot {
            "hero" => self.hero.name,
            "he" => self.hero.words[0],
            "him" => self.hero.words[1],
            "his" => self.hero.words[2],
            "friend" => self.friend.name,
            "she" => self.friend.words[0],
            "her" => self.friend.words[1],
            "hers" => self.friend.words[2],
            "place" => self.place,
            "look" => self.look,
            "thing" => self.thing,
            "food" => self.food,
            "nature" => self.nature,
            "a_look" => article(self.look),
            "a_nature" => article(self.nature),
            _ => "",
        }
    }
}

fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn story(random: &mut SplitMix64, text: &mut String) {
    let hero = hero(random, None);
    let friend = self::hero(random, Some(hero.name));
    let cast = StoryContext {
        nature: random.choice(TRAITS),
        place: random.choice(PLACES),
        look: random.choice(LOOKS),
        thing: random.choice(THINGS),
        food: random.choice(FOODS),
        hero,
        friend,
    };
    opening(&cast, random, text);
    match random.below(6) {
        0 => lost(&cast, random, text),
        1 => found(&cast, random, text),
        2 => feast(&cast, random, text),
        3 => storm(&cast, random, text),
        4 => contest(&cast, random, text),
        _ => making(&cast, random, text),
    }
    ending(&cast, random, text);
    while text.ends_with(' ') {
        text.pop();
    }
}

/// Writes one of several wordings.
fn one(cast: &StoryContext, random: &mut SplitMix64, text: &mut String, wordings: &[&str]) {
    let wording = random.choice(wordings);
    cast.say(random, text, wording);
}

fn opening(cast: &StoryContext, random: &mut SplitMix64, text: &mut String) {
    let kind = cast.hero.kind.unwrap_or(if cast.hero.words == SHE { "girl" } else { "boy" });
    let (nature, name) = (cast.nature, cast.hero.name);
    let an = article(nature);
    let _ = match random.below(4) {
        0 => write!(text, "Once upon a time there was {an} {nature} {kind} called {name}. "),
        1 => write!(text, "{name} was {an} {nature} {kind} who lived near {}. ", cast.place),
        2 => write!(text, "There once was {an} {nature} {kind}. Everyone called {} {name}. ", cast.hero.words[1]),
        _ => write!(text, "In a house by {} lived {an} {nature} {kind} whose name was {name}. ", cast.place),
    };
    let love = [
        "{He} loved {food} more than anything else.",
        "Every day {he} ate {food} for breakfast.",
        "{He} had a good friend called {friend}.",
        "{His} best friend was {friend}.",
        "{He} liked to walk to {place} and look around.",
    ];
    one(cast, random, text, &love);
}

fn day(random: &mut SplitMix64, text: &mut String) {
    let (time, weather) = (random.choice(TIMES), random.choice(WEATHER));
    let _ = match random.below(3) {
        0 => write!(text, "{time} it was very {weather}. "),
        1 => write!(text, "{time} the weather was {weather}. "),
        _ => write!(text, "It was a {weather} day. "),
    };
}

fn feel(random: &mut SplitMix64, text: &mut String, name: &str, feelings: &[(&str, &str)]) {
    let (feeling, act) = random.choice(feelings);
    let _ = match random.below(3) {
        0 => write!(text, "{name} was so {feeling} and {act}. "),
        1 => write!(text, "{name} felt {feeling}. "),
        _ => write!(text, "This made {name} very {feeling}. "),
    };
}

fn lost(cast: &StoryContext, random: &mut SplitMix64, text: &mut String) {
    day(random, text);
    one(
        cast,
        random,
        text,
        &[
            "{Hero} could not find {his} {look} {thing}.",
            "{Hero} lost {his} {look} {thing} somewhere in {place}.",
            "When {hero} woke up, {his} {look} {thing} was gone.",
        ],
    );
    feel(random, text, cast.hero.name, SADNESS);
    one(
        cast,
        random,
        text,
        &[
            "\"Have you seen my {thing}?\" {he} asked {friend}.",
            "{He} ran to {friend} and asked for help.",
            "\"Please help me look for my {thing},\" {he} said to {friend}.",
        ],
    );
    one(
        cast,
        random,
        text,
        &[
            "\"No, but I will help you,\" said {friend}.",
            "\"Do not worry,\" said {friend}, \"we will find it together.\"",
            "{Friend} put on {hers} shoes and came along.",
        ],
    );
    if random.below(2) == 0 {
        let _ =
            write!(text, "They looked {} and {}, but it was not there. ", random.choice(HIDING), random.choice(HIDING));
    } else {
        one(
            cast,
            random,
            text,
            &["They walked all the way to {place} and back.", "They asked everyone they met in {place}."],
        );
    }
    let place = random.choice(HIDING);
    let _ = match random.below(3) {
        0 => write!(text, "At last {} found the {} {place}. ", cast.friend.name, cast.thing),
        1 => write!(text, "Then {} saw something {} {place}. It was the {}! ", cast.hero.name, cast.look, cast.thing),
        _ => write!(text, "\"Look!\" said {}. The {} {} was {place}. ", cast.friend.name, cast.look, cast.thing),
    };
}

fn found(cast: &StoryContext, random: &mut SplitMix64, text: &mut String) {
    day(random, text);
    let place = random.choice(HIDING);
    let _ = match random.below(2) {
        0 => write!(text, "{} found {} {} {} {place}. ", cast.hero.name, article(cast.look), cast.look, cast.thing),
        _ => write!(
            text,
            "{} went for a walk and saw {} {} {} {place}. ",
            cast.hero.name,
            article(cast.look),
            cast.look,
            cast.thing
        ),
    };
    one(
        cast,
        random,
        text,
        &[
            "\"Whose {thing} is this?\" {he} thought.",
            "{He} picked it up and looked at it for a long time.",
            "{He} wanted to keep the {thing}, but it was not {his}.",
        ],
    );
    one(
        cast,
        random,
        text,
        &[
            "Just then {friend} came by and looked very sad.",
            "Near {place} {he} met {friend}, who was looking for something.",
        ],
    );
    one(
        cast,
        random,
        text,
        &["\"I lost my {look} {thing},\" said {friend}.", "\"My {thing} is gone,\" {friend} told {him}."],
    );
    one(
        cast,
        random,
        text,
        &[
            "{Hero} gave the {thing} back at once.",
            "\"Here it is,\" said {hero} and gave it to {her}.",
            "\"Is this yours?\" asked {hero} and held up the {thing}.",
        ],
    );
    feel(random, text, cast.friend.name, FEELINGS);
}

fn feast(cast: &StoryContext, random: &mut SplitMix64, text: &mut String) {
    day(random, text);
    one(
        cast,
        random,
        text,
        &[
            "{Hero} wanted to make {food} for {friend}.",
            "It was the birthday of {friend}, and {hero} wanted to bring {her} some {food}.",
            "{Friend} was ill, so {hero} decided to cook {food} for {her}.",
        ],
    );
    one(
        cast,
        random,
        text,
        &[
            "But there was nothing left in the kitchen.",
            "But {he} did not know how to make it.",
            "But on the way to {place} {he} dropped everything.",
        ],
    );
    feel(random, text, cast.hero.name, SADNESS);
    one(
        cast,
        random,
        text,
        &[
            "So {he} went to the market with {his} {look} {thing} and gave it away for {food}.",
            "A neighbour saw {him} and brought {him} a big basket full of {food}.",
            "{He} read about it in a book and tried again and again.",
        ],
    );
    one(
        cast,
        random,
        text,
        &[
            "In the evening they sat at {place} and ate the {food} together.",
            "{Friend} ate all of the {food} and asked for more.",
            "\"This is the best {food} I ever had,\" said {friend}.",
        ],
    );
    feel(random, text, cast.friend.name, FEELINGS);
}

fn storm(cast: &StoryContext, random: &mut SplitMix64, text: &mut String) {
    one(
        cast,
        random,
        text,
        &[
            "{Hero} and {friend} were playing in {place} with {a_look} {look} {thing}.",
            "{Hero} took {friend} to {place} to show {her} {a_look} {look} {thing}.",
        ],
    );
    one(
        cast,
        random,
        text,
        &[
            "Suddenly the sky became dark and it began to rain.",
            "Then a strong wind came and blew the {thing} away.",
            "All at once there was thunder, and {friend} was afraid.",
        ],
    );
    feel(random, text, cast.friend.name, SADNESS);
    let place = random.choice(HIDING);
    let _ = write!(text, "\"Come with me,\" said {}, and they waited {place}. ", cast.hero.name);
    one(
        cast,
        random,
        text,
        &[
            "{Hero} sang a song so that {friend} would not be afraid.",
            "{Hero} shared {his} {food} with {her}, and soon they both felt better.",
            "They told each other stories about {place}.",
        ],
    );
    one(
        cast,
        random,
        text,
        &[
            "When the sun came out again, the {thing} was lying right in front of them.",
            "After an hour the storm was over and they walked home.",
            "Soon the rain stopped, and there was a rainbow over {place}.",
        ],
    );
}

fn contest(cast: &StoryContext, random: &mut SplitMix64, text: &mut String) {
    day(random, text);
    one(
        cast,
        random,
        text,
        &[
            "There was a race in {place}, and {hero} wanted to win the {look} {thing}.",
            "{Hero} and {friend} had a contest: the winner would get {a_look} {look} {thing}.",
        ],
    );
    one(
        cast,
        random,
        text,
        &[
            "\"I am faster than you,\" said {friend}.",
            "\"I will never win,\" said {hero}.",
            "Everyone thought that {friend} would win.",
        ],
    );
    one(
        cast,
        random,
        text,
        &[
            "{Hero} practised every day before breakfast.",
            "{Hero} ate a lot of {food} to become strong.",
            "{Hero} went to bed early and slept well.",
        ],
    );
    one(
        cast,
        random,
        text,
        &["Halfway to {place} {friend} fell and hurt {hers} foot.", "Near the end {friend} lost {hers} way."],
    );
    one(
        cast,
        random,
        text,
        &[
            "{Hero} stopped at once and helped {her} up.",
            "{Hero} turned around, took {hers} hand, and they walked on together.",
            "{Hero} could have won, but {he} went back to help {friend}.",
        ],
    );
    one(
        cast,
        random,
        text,
        &[
            "In the end they both got the {look} {thing}.",
            "They came last, but everyone clapped for them.",
            "{Friend} gave {him} the {look} {thing} to say thank you.",
        ],
    );
}

fn making(cast: &StoryContext, random: &mut SplitMix64, text: &mut String) {
    day(random, text);
    one(
        cast,
        random,
        text,
        &[
            "{Hero} wanted to build {a_look} {look} {thing}.",
            "{Hero} had an idea: {he} would make {a_look} {look} {thing} for {friend}.",
        ],
    );
    one(
        cast,
        random,
        text,
        &[
            "First {he} looked for wood in {place}.",
            "First {he} drew a plan on a big sheet of paper.",
            "First {he} asked {friend} for some tools.",
        ],
    );
    one(
        cast,
        random,
        text,
        &[
            "Then {he} worked until it was dark.",
            "Then {he} cut and glued and painted for three days.",
            "Then {friend} came to help, and they worked together.",
        ],
    );
    one(
        cast,
        random,
        text,
        &[
            "But the {thing} broke in two.",
            "But the {thing} was much too small.",
            "But when {he} tried the {thing}, nothing happened.",
        ],
    );
    feel(random, text, cast.hero.name, SADNESS);
    one(
        cast,
        random,
        text,
        &[
            "\"Try once more,\" said {friend}, \"I believe in you.\"",
            "{He} ate some {food}, took a deep breath, and started again.",
            "{Friend} showed {him} how to do it better.",
        ],
    );
    one(
        cast,
        random,
        text,
        &[
            "This time the {look} {thing} was perfect.",
            "The second {thing} was even better than {he} had hoped.",
            "Finally the {thing} was ready, and {friend} could not believe {hers} eyes.",
        ],
    );
}

fn ending(cast: &StoryContext, random: &mut SplitMix64, text: &mut String) {
    feel(random, text, cast.hero.name, FEELINGS);
    match random.below(3) {
        0 => {
            let _ = write!(text, "From that day on {} knew that {}. ", cast.hero.name, random.choice(LESSONS));
        }
        1 => {
            let _ = write!(text, "{} learned that {}. ", cast.hero.name, random.choice(LESSONS));
        }
        _ => {}
    }
    one(
        cast,
        random,
        text,
        &[
            "And so {hero} and {friend} stayed friends forever.",
            "Then they went home and ate {food}.",
            "That night {hero} slept very well.",
            "{Hero} and {friend} went back to {place} many times.",
            "The end.",
        ],
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn stories_are_varied_complete_and_repeatable() {
        let text = write_stories(1, 200_000);
        assert_eq!(text, write_stories(1, 200_000));
        assert_ne!(text, write_stories(2, 200_000));
        let stories: Vec<&str> = text.split(END_OF_TEXT).map(str::trim).filter(|s| !s.is_empty()).collect();
        let different: BTreeSet<&str> = stories.iter().copied().collect();
        assert_eq!(stories.len(), different.len());
        for story in stories {
            assert!(story.ends_with(['.', '!']), "{story}");
            assert!(!story.contains(['{', '}', '\n']) && !story.contains("  "), "{story}");
            assert!((200..1500).contains(&story.len()), "{} bytes: {story}", story.len());
        }
    }
}
