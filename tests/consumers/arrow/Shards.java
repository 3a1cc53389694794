// Sums of each shard: rows, ids without the word bit, lengths, labels; then what a value of ids is and the metadata's format.
import java.io.FileInputStream;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BitVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.UInt2Vector;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.ipc.ArrowFileReader;

class Shards {
    public static void main(String[] paths) throws Exception {
        List<String> found = new ArrayList<>();
        for (String path : paths) {
            try (var memory = new RootAllocator();
                    var reader = new ArrowFileReader(new FileInputStream(path).getChannel(), memory)) {
                reader.loadNextBatch();
                var root = reader.getVectorSchemaRoot();
                String info = root.getSchema().getCustomMetadata().get("shard");
                FieldVector values = ((ListVector) root.getVector(0)).getDataVector();
                long mask = info.contains("\"words\"") ? 0x7fffffffL : 0xffffffffL;
                long ids = 0, lengths = 0, labels = 0;
                boolean negative = false;
                for (int i = 0; i < values.getValueCount(); i++) {
                    Object value = values.getObject(i);
                    long id = value instanceof Character c ? c : (Integer) value;
                    negative |= id < 0;
                    ids += id & mask;
                }
                for (int row = 0; row < root.getRowCount(); row++) {
                    lengths += ((UInt2Vector) root.getVector(1)).get(row);
                    labels += ((BitVector) root.getVector(2)).get(row);
                }
                String type = values.getObject(0).getClass().getSimpleName() + (negative ? ", negative" : "");
                String format = info.contains("\"shard/2\"") ? "shard/2" : "shard/1";
                found.add("[%d, %d, %d, %d, \"%s\", \"%s\"]"
                        .formatted(root.getRowCount(), ids, lengths, labels, type, format));
            }
        }
        System.out.println(found);
    }
}
