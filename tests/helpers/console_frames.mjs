// Reads frames as JSON, one a line, with the module of the console; prints [path, text] of each value, joined by path.
import { readFileSync } from "node:fs";

const { FieldTable, emptyText, pointer, valueText } = await import(process.argv[2]);
const table = new FieldTable();
const found = new Map();
for (const line of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const frame = JSON.parse(line);
  if (frame.header) table.add(frame.header);
  const text = valueText(frame) ?? emptyText(frame);
  if (text === undefined) continue;
  const path = pointer(table.tokens(frame));
  found.set(path, (found.get(path) ?? "") + text);
}
console.log(JSON.stringify([...found]));
