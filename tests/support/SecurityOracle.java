import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.config.*;
import org.apache.kafka.common.config.provider.ConfigProvider;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.security.kerberos.*;

/** Says how Kafka reads JAAS lines ("jaas TEXT"), references ("refs TEXT"), and principals ("names REALM\nRULE\nPRINCIPAL"); text and answers are base64, one a line. */
public class SecurityOracle {
    static String b64(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    /** Every key of the path "p" of any provider has the value "<path|key>". */
    static class Echo implements ConfigProvider {
        public ConfigData get(String path) { return new ConfigData(Map.of()); }
        public ConfigData get(String path, Set<String> keys) {
            Map<String, String> found = new HashMap<>();
            for (String key : keys) found.put(key, "<" + path + "|" + key + ">");
            return new ConfigData(found);
        }
        public void configure(Map<String, ?> configs) { }
        public void close() { }
    }

    static String jaas(String text) {
        try {
            var context = JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(text)));
            var entry = context.configurationEntries().get(0);
            var out = new StringBuilder("ok " + b64(entry.getLoginModuleName()));
            for (var option : new TreeMap<String, Object>(entry.getOptions()).entrySet())
                out.append(" ").append(b64(option.getKey())).append(":").append(b64((String) option.getValue()));
            return out.toString();
        } catch (Exception e) {
            return "error";
        }
    }

    static String references(String text) {
        var transformer = new ConfigTransformer(Map.of("a", new Echo(), "b", new Echo()));
        return "ok " + b64(transformer.transform(Map.of("key", text)).data().get("key"));
    }

    static String names(String text) {
        var lines = text.split("\n", 3);
        try {
            var namer = KerberosShortNamer.fromUnparsedRules(lines[0], List.of(lines[1].split(",")));
            return "ok " + b64(namer.shortName(KerberosName.parse(lines[2])));
        } catch (Exception e) {
            return "error";
        }
    }

    public static void main(String[] args) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            var words = line.split(" ", 2);
            var text = new String(Base64.getDecoder().decode(words.length > 1 ? words[1] : ""), StandardCharsets.UTF_8);
            System.out.println(words[0].equals("jaas") ? jaas(text) : words[0].equals("names") ? names(text) : references(text));
        }
    }
}
