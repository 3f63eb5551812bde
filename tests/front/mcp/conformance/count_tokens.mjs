// Reads a JSON list of texts; prints the number of o200k tokens of each. Argument: the folder node_modules.
import fs from "node:fs";
import { createRequire } from "node:module";

const load = createRequire(`${process.argv[2]}/`);
const { Tiktoken } = load("js-tiktoken/lite");
const vocabulary = load("js-tiktoken/ranks/o200k_base");
const encoding = new Tiktoken(vocabulary.default ?? vocabulary);
const texts = JSON.parse(fs.readFileSync(0, "utf8"));
console.log(JSON.stringify(texts.map((text) => encoding.encode(text).length)));
