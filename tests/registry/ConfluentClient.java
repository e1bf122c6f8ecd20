import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.CompatibilityLevel;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.ParsedSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;

/** Confluent's Java client and its Avro rules, in the jar in which Flink has them. */
public final class ConfluentClient {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("oracle")) {
            oracle();
        } else {
            client(args[0], args[1]);
        }
    }

    /** Answers pairs of schemas, new and old in base64: the new one's canonical text, and what keeps it from reading the old one. */
    private static void oracle() {
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            String[] pair = lines.nextLine().split(" ");
            AvroSchema next = new AvroSchema(decoded(pair[0]));
            AvroSchema old = new AvroSchema(decoded(pair[1]));
            List<String> said = new ArrayList<>();
            said.add(encoded(next.canonicalString()));
            for (String each : next.isBackwardCompatible(old)) {
                said.add(encoded(each));
            }
            System.out.println(String.join(" ", said));
        }
    }

    private static String decoded(String text) {
        return new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8);
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    /** Uses a registry as applications do, and prints what it saw. */
    private static void client(String url, String subject) throws Exception {
        CachedSchemaRegistryClient registry = new CachedSchemaRegistryClient(List.of(url), 100, Map.of());
        String record = "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"%s}%s]}";
        ParsedSchema one = new AvroSchema(String.format(record, "", ""));
        ParsedSchema two = new AvroSchema(String.format(record, "", ",{\"name\":\"b\",\"type\":\"int\",\"default\":1}"));
        ParsedSchema bad = new AvroSchema(String.format(record, "", ",{\"name\":\"c\",\"type\":\"int\"}"));
        int first = registry.register(subject, one);
        int second = registry.register(subject, two);
        System.out.println("distinct " + (first != second));
        System.out.println("same " + (registry.register(subject, one) == first));
        CachedSchemaRegistryClient other = new CachedSchemaRegistryClient(List.of(url), 100, Map.of());
        System.out.println("by id " + other.getSchemaById(second).equals(two));
        System.out.println("id " + (other.getId(subject, two) == second));
        System.out.println("version " + other.getVersion(subject, two));
        System.out.println("versions " + other.getAllVersions(subject));
        System.out.println("latest " + other.getLatestSchemaMetadata(subject).getVersion());
        System.out.println("fits " + other.testCompatibility(subject, two) + " " + other.testCompatibility(subject, bad));
        System.out.println("why " + other.testCompatibilityVerbose(subject, bad).get(0));
        try {
            other.register(subject, bad);
        } catch (RestClientException e) {
            System.out.println("refused " + e.getStatus() + " " + e.getErrorCode());
        }
        System.out.println("set " + other.updateCompatibility(subject, CompatibilityLevel.FULL.name));
        System.out.println("level " + other.getCompatibility(subject));
        System.out.println("mode " + other.setMode("READONLY", subject) + " " + other.getMode(subject));
        other.setMode("READWRITE", subject);
        System.out.println("subjects " + other.getAllSubjects().contains(subject));
        System.out.println("deleted " + other.deleteSchemaVersion(subject, "2") + " " + other.deleteSubject(subject));
        System.out.println("gone " + other.deleteSubject(subject, true));
        try {
            other.getLatestSchemaMetadata(subject);
        } catch (RestClientException e) {
            System.out.println("missing " + e.getStatus() + " " + e.getErrorCode());
        }
    }
}
