import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.apicurio.registry.utils.converter.avro.AvroData;
import io.apicurio.registry.utils.converter.avro.AvroDataConfig;
import io.apicurio.registry.serde.avro.NonRecordContainer;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * Connect's values as Avro by AvroData, which Confluent's converter and Apicurio's share: a question a line, JSON both ways.
 *
 * {"data": envelope} gives {"schema": text, "bytes": base64}; {"schema": text, "bytes": base64} gives {"data": envelope}.
 */
public final class AvroOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonConverter VALUES = new JsonConverter();

    public static void main(String[] args) throws Exception {
        VALUES.configure(Map.of("schemas.enable", "true", "replace.null.with.default", "false"), false);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine())
            System.out.write((JSON.writeValueAsString(answer(JSON.readTree(line))) + "\n").getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }

    private static ObjectNode answer(JsonNode question) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            AvroData avro = new AvroData(new AvroDataConfig(Map.of()));
            if (question.has("data")) write(avro, question.get("data"), answer);
            else read(avro, question, answer);
        } catch (Throwable e) {
            answer.removeAll();
            answer.put("error", e.getClass().getName()).put("message", e.getMessage());
        }
        return answer;
    }

    private static void write(AvroData avro, JsonNode data, ObjectNode answer) throws Exception {
        SchemaAndValue value = VALUES.toConnectData("t", JSON.writeValueAsBytes(data));
        Schema schema = avro.fromConnectSchema(value.schema());
        Object datum = avro.fromConnectData(value.schema(), value.value());
        if (datum instanceof NonRecordContainer container) datum = container.getValue();
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, null);
        new GenericDatumWriter<>(schema).write(datum instanceof byte[] b ? java.nio.ByteBuffer.wrap(b) : datum, encoder);
        encoder.flush();
        answer.put("schema", schema.toString()).put("bytes", Base64.getEncoder().encodeToString(out.toByteArray()));
    }

    private static void read(AvroData avro, JsonNode question, ObjectNode answer) throws Exception {
        Schema schema = new Schema.Parser().parse(question.get("schema").textValue());
        Object datum = new GenericDatumReader<>(schema)
            .read(null, DecoderFactory.get().binaryDecoder(question.get("bytes").binaryValue(), null));
        SchemaAndValue value = avro.toConnectData(schema, datum);
        byte[] bytes = VALUES.fromConnectData("t", value.schema(), value.value());
        answer.set("data", bytes == null ? null : JSON.readTree(bytes));
    }
}
