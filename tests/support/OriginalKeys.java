import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Connector;

/** Prints the configuration keys of classes, given as SPACE=CLASS: space, name, type and default, separated by tabs. */
public class OriginalKeys {
    static final String CRYPTO = "org.apache.kafka.connect.runtime.distributed.Crypto";
    static final String DEBEZIUM = "io.debezium.config.Field";

    public static void main(String[] args) throws Exception {
        for (String arg : args) {
            String space = arg.substring(0, arg.indexOf('=')), name = arg.substring(arg.indexOf('=') + 1);
            Map<String, String> keys = keys(Class.forName(name));
            if (keys.isEmpty()) throw new IllegalStateException(name + " has no keys");
            keys.forEach((key, row) -> System.out.println(String.join("\t", space, key, row)));
        }
    }

    /** Returns type and default by key: of a connector's definition; of another class, from its static fields and its static
     *  methods without parameters (both with those of its superclasses), and from what needs a worker's properties. */
    static Map<String, String> keys(Class<?> type) throws Exception {
        Map<String, String> found = new TreeMap<>();
        if (Connector.class.isAssignableFrom(type)) {
            add(found, ((Connector) type.getDeclaredConstructor().newInstance()).config());
            return found;
        }
        for (Class<?> c = type; c != null && !c.getName().startsWith("java."); c = c.getSuperclass()) {
            for (Field field : c.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers())) continue;
                field.setAccessible(true);
                if (field.getType() == ConfigDef.class && field.get(null) != null) add(found, (ConfigDef) field.get(null));
                else if (field.getType().getName().equals(DEBEZIUM) && field.get(null) != null) add(found, field.get(null));
            }
            for (Method method : c.getDeclaredMethods()) {
                if (method.getReturnType() != ConfigDef.class || !Modifier.isStatic(method.getModifiers())) continue;
                method.setAccessible(true);
                Class<?>[] takes = method.getParameterTypes();
                if (takes.length == 0) add(found, (ConfigDef) method.invoke(null));
                else if (takes.length == 1 && takes[0].getName().equals(CRYPTO))
                    add(found, (ConfigDef) method.invoke(null, takes[0].getField("SYSTEM").get(null)));
            }
        }
        return found;
    }

    static void add(Map<String, String> found, ConfigDef definition) {
        for (ConfigDef.ConfigKey key : definition.configKeys().values()) {
            Object value = ConfigDef.NO_DEFAULT_VALUE.equals(key.defaultValue) ? "required"
                : ConfigDef.convertToString(key.defaultValue, key.type);
            found.putIfAbsent(key.name, key.type + "\t" + value);
        }
    }

    static void add(Map<String, String> found, Object field) throws Exception {
        String value = (String) field.getClass().getMethod("defaultValueAsString").invoke(field);
        Object type = field.getClass().getMethod("type").invoke(field), name = field.getClass().getMethod("name").invoke(field);
        found.putIfAbsent((String) name, type + "\t" + value);
    }
}
