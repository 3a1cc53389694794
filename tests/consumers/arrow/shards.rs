// Sums of each shard: rows, ids without the word bit, lengths, labels; then the type of ids and the metadata's format.
use arrow_array::{Array, cast::AsArray, types::{UInt16Type, UInt32Type}};
use arrow_ipc::reader::FileReader;

fn main() {
    let found: Vec<String> = std::env::args().skip(1).map(|path| {
        let mut reader = FileReader::try_new(std::fs::File::open(path).unwrap(), None).unwrap();
        let info = reader.schema().metadata()["shard"].clone();
        let batch = reader.next().unwrap().unwrap();
        let values = batch.column(0).as_list::<i32>().values();
        let mask: u32 = if info.contains("\"words\"") { 0x7fff_ffff } else { u32::MAX };
        let ids: u64 = match values.as_primitive_opt::<UInt16Type>() {
            Some(ids) => ids.values().iter().map(|id| u64::from(*id)).sum(),
            None => values.as_primitive::<UInt32Type>().values().iter().map(|id| u64::from(id & mask)).sum(),
        };
        let lengths: u64 = batch.column(1).as_primitive::<UInt16Type>().values().iter().map(|one| u64::from(*one)).sum();
        let labels = batch.column(2).as_boolean().true_count();
        let format = if info.contains("\"shard/2\"") { "shard/2" } else { "shard/1" };
        format!("[{}, {ids}, {lengths}, {labels}, \"{:?}\", \"{format}\"]", batch.num_rows(), values.data_type())
    }).collect();
    println!("[{}]", found.join(", "));
}
