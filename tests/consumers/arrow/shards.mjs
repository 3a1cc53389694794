// Sums of each shard: rows, ids without the word bit, lengths, labels; then the type of ids and the metadata's format.
import {readFileSync} from "node:fs";
import {createRequire} from "node:module";
const {tableFromIPC} = createRequire(process.cwd() + "/")("apache-arrow");
const found = JSON.parse(process.argv[1]).map((path) => {
  const table = tableFromIPC(readFileSync(path));
  const info = JSON.parse(table.schema.metadata.get("shard"));
  const type = String(table.schema.fields[0].type.children[0].type);
  const mask = 2 ** (Number(type.slice(4)) - (info.words ? 1 : 0)) - 1;
  const sums = [0, 0, 0];
  for (const row of table) {
    for (const id of row.input_ids) sums[0] += (id & mask) >>> 0;
    sums[1] += row.a_len;
    sums[2] += row.is_random_next;
  }
  return [table.numRows, ...sums, type, info.format];
});
console.log(JSON.stringify(found));
