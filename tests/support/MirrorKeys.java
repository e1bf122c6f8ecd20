import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.runtime.distributed.Crypto;

/** Prints every configuration key that MirrorMaker 2 reads: its space, name, type and default, separated by tabs. */
public class MirrorKeys {
    static final String MIRROR = "org.apache.kafka.connect.mirror.";
    static final String RUNTIME = "org.apache.kafka.connect.runtime.";
    static final String CLIENTS = "org.apache.kafka.clients.";
    static final String[][] SOURCES = {
        {"connector", MIRROR + "MirrorSourceConfig"},
        {"connector", MIRROR + "MirrorCheckpointConfig"},
        {"connector", MIRROR + "MirrorHeartbeatConfig"},
        {"connector", MIRROR + "DefaultTopicFilter$TopicFilterConfig"},
        {"connector", MIRROR + "DefaultGroupFilter$GroupFilterConfig"},
        {"connector", MIRROR + "DefaultConfigPropertyFilter$ConfigPropertyFilterConfig"},
        {"connector", RUNTIME + "SourceConnectorConfig"},
        {"file", MIRROR + "MirrorMakerConfig"},
        {"worker", RUNTIME + "distributed.DistributedConfig"},
        {"common", MIRROR + "MirrorClientConfig"},
        {"consumer", CLIENTS + "consumer.ConsumerConfig"},
        {"producer", CLIENTS + "producer.ProducerConfig"},
        {"admin", CLIENTS + "admin.AdminClientConfig"},
    };

    public static void main(String[] args) throws Exception {
        for (String[] source : SOURCES) {
            Map<String, ConfigDef.ConfigKey> keys = keys(Class.forName(source[1]));
            if (keys.isEmpty()) throw new IllegalStateException(source[1] + " has no keys");
            new TreeMap<>(keys).values().forEach(key -> {
                Object value = ConfigDef.NO_DEFAULT_VALUE.equals(key.defaultValue) ? "required"
                    : ConfigDef.convertToString(key.defaultValue, key.type);
                System.out.println(String.join("\t", source[0], key.name, key.type.toString(), String.valueOf(value)));
            });
        }
    }

    /** Collects the definitions in a class: its static fields, its static methods without parameters (both with those of
     *  its superclasses), and what needs a worker's properties. */
    static Map<String, ConfigDef.ConfigKey> keys(Class<?> type) throws Exception {
        Map<String, ConfigDef.ConfigKey> found = new TreeMap<>();
        for (Class<?> c = type; c != null && c.getName().startsWith("org.apache.kafka"); c = c.getSuperclass()) {
            for (Field field : c.getDeclaredFields()) {
                if (field.getType() == ConfigDef.class && Modifier.isStatic(field.getModifiers())) {
                    field.setAccessible(true);
                    ConfigDef def = (ConfigDef) field.get(null);
                    if (def != null) found.putAll(def.configKeys());
                }
            }
            for (Method method : c.getDeclaredMethods()) {
                if (method.getReturnType() != ConfigDef.class || !Modifier.isStatic(method.getModifiers())) continue;
                method.setAccessible(true);
                Class<?>[] takes = method.getParameterTypes();
                if (takes.length == 0) found.putAll(((ConfigDef) method.invoke(null)).configKeys());
                else if (takes.length == 1 && takes[0] == Crypto.class)
                    found.putAll(((ConfigDef) method.invoke(null, Crypto.SYSTEM)).configKeys());
            }
        }
        return found;
    }
}
