// Small stories to learn from, told from lists of words.

const pick = (random, all) => all[Math.floor(random() * all.length)];
const names = ["anna", "ben", "mia", "tom", "lily", "sam", "nora", "leo"];
const animals = ["cat", "dog", "bird", "frog", "fox", "bear", "duck", "mouse"];
const colours = ["red", "blue", "green", "yellow", "white", "black"];
const things = ["ball", "hat", "boat", "kite", "cake", "book", "cup", "drum"];
const places = ["park", "garden", "forest", "river", "hill", "house", "lake", "barn"];
const moods = ["happy", "sad", "tired", "proud", "shy", "brave"];

/** Numbers from 0 to 1 by a seed. */
export function generator(seed) {
  let s = seed >>> 0;
  return () => {
    s = (s + 0x6d2b79f5) >>> 0;
    let t = Math.imul(s ^ (s >>> 15), s | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export function story(random) {
  const [name, animal, colour, thing, place] = [names, animals, colours, things, places].map((l) => pick(random, l));
  const mood = pick(random, moods);
  const begin = pick(random, [
    `once there was a ${mood} ${animal}. `,
    `one day ${name} went to the ${place}. `,
    `${name} had a ${colour} ${thing}. `,
  ]);
  const middle = pick(random, [
    `the ${animal} saw a ${colour} ${thing} in the ${place}. "is it yours?" said ${name}. `,
    `${name} met a ${animal} and they played with the ${thing}. `,
    `the ${thing} fell into the ${place}, and ${name} was ${mood}. `,
  ]);
  const end = pick(random, [
    `then they went home. the end.\n`,
    `"thank you", said the ${animal}. they were friends. the end.\n`,
    `${name} was happy again. the end.\n`,
  ]);
  return begin + middle + end;
}

export function book(stories, seed = 1) {
  const random = generator(seed);
  return Array.from({ length: stories }, () => story(random)).join("");
}
