import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.TimeZone;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/**
 * Kafka's own transforms, predicates and converters: a question a line on standard input, its answer on standard output,
 * both JSON.
 *
 * {"transform": class, "config": {}, "record": {}} gives {"record": {}}, {"dropped": true} or {"error": class, "message": …};
 * {"predicate": …} gives {"test": true}; {"validate": class, "config": {}} gives {"errors": {key: [text]}};
 * {"converter": class, "config": {}, "data": envelope} gives {"bytes": base64} and {"bytes": base64} gives {"data": envelope}.
 * Keys, values and headers are envelopes of the JsonConverter, null standing for nothing at all.
 */
public final class TransformOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonConverter VALUES = new JsonConverter();

    public static void main(String[] args) throws Exception {
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        VALUES.configure(Map.of("schemas.enable", "true", "replace.null.with.default", "false"), false);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine())
            System.out.write((JSON.writeValueAsString(answer(JSON.readTree(line))) + "\n").getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }

    private static ObjectNode answer(JsonNode question) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            if (question.has("transform")) transform(question, answer);
            else if (question.has("predicate")) predicate(question, answer);
            else if (question.has("validate")) validate(question, answer);
            else converter(question, answer);
        } catch (Throwable e) {
            answer.removeAll();
            answer.put("error", e.getClass().getName()).put("message", e.getMessage());
        }
        return answer;
    }

    @SuppressWarnings({"rawtypes", "unchecked"})
    private static void transform(JsonNode question, ObjectNode answer) throws Exception {
        Transformation transform = (Transformation) made(question, "transform");
        ConnectRecord<?> out = transform.apply((ConnectRecord) record(question.get("record")));
        if (out == null) answer.put("dropped", true);
        else answer.set("record", written(out));
        transform.close();
    }

    @SuppressWarnings({"rawtypes", "unchecked"})
    private static void predicate(JsonNode question, ObjectNode answer) throws Exception {
        Predicate predicate = (Predicate) made(question, "predicate");
        answer.put("test", predicate.test((ConnectRecord) record(question.get("record"))));
        predicate.close();
    }

    private static void validate(JsonNode question, ObjectNode answer) throws Exception {
        Object plugin = Class.forName(question.get("validate").textValue()).getDeclaredConstructor().newInstance();
        ConfigDef definition = plugin instanceof Transformation<?> t ? t.config() : ((Predicate<?>) plugin).config();
        ObjectNode errors = answer.putObject("errors");
        for (ConfigValue value : definition.validate(config(question)))
            if (!value.errorMessages().isEmpty())
                errors.set(value.name(), JSON.valueToTree(value.errorMessages()));
    }

    private static void converter(JsonNode question, ObjectNode answer) throws Exception {
        Converter converter =
            (Converter) Class.forName(question.get("converter").textValue()).getDeclaredConstructor().newInstance();
        converter.configure(config(question), false);
        if (question.has("bytes")) {
            answer.set("data", envelope(converter.toConnectData("t", question.get("bytes").binaryValue())));
            return;
        }
        SchemaAndValue data = data(question.get("data"));
        byte[] bytes = converter.fromConnectData("t", data.schema(), data.value());
        answer.put("bytes", bytes == null ? null : Base64.getEncoder().encodeToString(bytes));
    }

    private static Configurable made(JsonNode question, String kind) throws Exception {
        Configurable plugin = (Configurable) Class.forName(question.get(kind).textValue()).getDeclaredConstructor().newInstance();
        plugin.configure(config(question));
        return plugin;
    }

    private static Map<String, String> config(JsonNode question) {
        Map<String, String> config = new HashMap<>();
        if (question.has("config"))
            question.get("config").fields().forEachRemaining(e -> config.put(e.getKey(), e.getValue().textValue()));
        return config;
    }

    private static ConnectRecord<?> record(JsonNode record) throws Exception {
        SchemaAndValue key = data(record.get("key"));
        SchemaAndValue value = data(record.get("value"));
        ConnectHeaders headers = new ConnectHeaders();
        if (record.has("headers"))
            for (JsonNode header : record.get("headers")) headers.add(header.get(0).textValue(), data(header.get(1)));
        Long timestamp = record.hasNonNull("timestamp") ? record.get("timestamp").longValue() : null;
        Integer partition = record.hasNonNull("partition") ? record.get("partition").intValue() : null;
        String topic = record.get("topic").textValue();
        if (record.has("offset"))
            return new SinkRecord(topic, partition, key.schema(), key.value(), value.schema(), value.value(),
                record.get("offset").longValue(), timestamp, TimestampType.CREATE_TIME, headers);
        return new SourceRecord(Map.of(), Map.of(), topic, partition, key.schema(), key.value(), value.schema(), value.value(),
            timestamp, headers);
    }

    private static ObjectNode written(ConnectRecord<?> record) throws Exception {
        ObjectNode out = JSON.createObjectNode();
        out.put("topic", record.topic());
        out.put("partition", record.kafkaPartition());
        out.put("timestamp", record.timestamp());
        out.set("key", envelope(new SchemaAndValue(record.keySchema(), record.key())));
        out.set("value", envelope(new SchemaAndValue(record.valueSchema(), record.value())));
        ArrayNode headers = out.putArray("headers");
        for (Header header : record.headers())
            headers.addArray().add(header.key()).add(envelope(new SchemaAndValue(header.schema(), header.value())));
        if (record instanceof SinkRecord sink) {
            out.put("offset", sink.kafkaOffset());
            out.putArray("original").add(sink.originalTopic()).add(sink.originalKafkaPartition())
                .add(sink.originalKafkaOffset());
        }
        return out;
    }

    private static SchemaAndValue data(JsonNode envelope) throws Exception {
        if (envelope == null || envelope.isNull()) return SchemaAndValue.NULL;
        return VALUES.toConnectData("t", JSON.writeValueAsBytes(envelope));
    }

    private static JsonNode envelope(SchemaAndValue data) throws Exception {
        byte[] bytes = VALUES.fromConnectData("t", data.schema(), data.value());
        return bytes == null ? null : JSON.readTree(bytes);
    }
}
