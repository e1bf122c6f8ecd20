import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.errors.RetriableException;

/** Answers one line per line: see tests/broker/test_wire_against_kafka.py. */
public class WireOracle {
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        var lines = new String(System.in.readAllBytes(), StandardCharsets.UTF_8).split("\n");
        var out = new StringBuilder();
        for (String line : lines) {
            String[] words = line.split(" ", -1);
            String answer;
            try {
                answer = switch (words[0]) {
                    case "message" -> message(words[1], Short.parseShort(words[2]), Short.parseShort(words[3]), HEX.parseHex(words[4]));
                    case "batch" -> batch(HEX.parseHex(words[1]));
                    case "build" -> build(words[1]);
                    case "errors" -> errors();
                    default -> "unknown command";
                };
            } catch (Throwable error) {
                answer = "error " + error;
            }
            out.append(answer.replace('\n', ' ')).append('\n');
        }
        System.out.print(out);
    }

    /** Reads a message in one version and writes it in another. */
    static String message(String name, short from, short to, byte[] bytes) throws Exception {
        var message = (Message) Class.forName(name).getDeclaredConstructor().newInstance();
        var buffer = ByteBuffer.wrap(bytes);
        message.read(new ByteBufferAccessor(buffer), from);
        if (buffer.hasRemaining()) return "left over " + buffer.remaining();
        var written = MessageUtil.toByteBufferAccessor(message, to).buffer();
        var again = new byte[written.remaining()];
        written.get(again);
        return HEX.formatHex(again);
    }

    static String batch(byte[] bytes) {
        var out = new StringBuilder();
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches()) {
            batch.ensureValid();
            out.append(batch.baseOffset()).append(',').append(batch.lastOffset()).append(',').append(batch.producerId())
                .append(',').append(batch.lastSequence()).append(',').append(batch.isControlBatch());
            for (var record : batch) {
                out.append(' ').append(record.offset()).append(',').append(record.timestamp()).append(',');
                out.append(hex(record.key())).append(',').append(hex(record.value()));
                for (Header header : record.headers())
                    out.append(',').append(header.key()).append('=').append(header.value() == null ? "null" : HEX.formatHex(header.value()));
            }
        }
        return out.toString();
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null) return "null";
        var bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HEX.formatHex(bytes);
    }

    static String build(String codec) {
        var rows = new SimpleRecord[500];
        for (int i = 0; i < rows.length; i++)
            rows[i] = new SimpleRecord(1000L + i, i % 3 == 0 ? null : ("k" + i).getBytes(), ("value " + i).getBytes(),
                i % 2 == 0 ? new Header[0] : new Header[] {new RecordHeader("h", new byte[] {1})});
        var compression = Compression.of(CompressionType.forName(codec)).build();
        return hex(MemoryRecords.withRecords(7L, compression, 3, rows).buffer());
    }

    static String errors() {
        var out = new StringBuilder();
        for (Errors error : Errors.values())
            out.append(error.name()).append(',').append(error.code()).append(',')
                .append(error.exception() instanceof RetriableException).append(' ');
        return out.toString().trim();
    }
}
