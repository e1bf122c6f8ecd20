import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.BufferedReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Kafka's command-line tools one after the other in one JVM, because starting one for each
 * costs more than the tool. Speaks with tests/support/kafka_tools.py: a line of base64 words (class, standard input,
 * arguments) is answered by a line: exit code, standard output, standard error.
 */
public class KafkaTools {
    static final class Exited extends Error {
        Exited(int code) { super("exit " + code, null, false, false); }
    }

    /** The first exit counts: tools that catch Throwable around their exit(0) complain and call exit(1) next. */
    static volatile Integer exitCode;
    static final List<Runnable> hooks = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        Exit.Procedure exit = (code, message) -> {
            if (message != null) System.err.println(message);
            if (exitCode == null) exitCode = code;
            System.setErr(new PrintStream(PrintStream.nullOutputStream()));
            throw new Exited(code);
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Exit.setShutdownHookAdder((name, hook) -> { synchronized (hooks) { hooks.add(hook); } });
        var commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream answers = System.out;
        for (String line; (line = commands.readLine()) != null; ) {
            answers.println(run(Arrays.stream(line.split(" ", -1)).map(KafkaTools::decode).toList()));
            answers.flush();
        }
        Runtime.getRuntime().halt(0); // threads that a tool left behind must not keep the process
    }

    static String run(List<String> words) {
        var out = new ByteArrayOutputStream();
        var err = new ByteArrayOutputStream();
        System.setIn(new ByteArrayInputStream(words.get(1).getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        var errors = new PrintStream(err, true, StandardCharsets.UTF_8);
        System.setErr(errors);
        exitCode = null;
        synchronized (hooks) { hooks.clear(); }
        int code = call(words.get(0), words.subList(2, words.size()).toArray(String[]::new), errors);
        System.out.flush();
        errors.flush();
        return code + " " + encode(out) + " " + encode(err);
    }

    static int call(String type, String[] args, PrintStream errors) {
        Throwable failure = null;
        try {
            Class.forName(type).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException error) {
            failure = error.getCause();
        } catch (ReflectiveOperationException error) {
            failure = error;
        }
        System.setErr(errors);
        List<Runnable> due;
        synchronized (hooks) { due = List.copyOf(hooks); }
        due.forEach(Runnable::run);
        if (exitCode != null) return exitCode;
        if (failure == null) return 0;
        failure.printStackTrace();
        return 1;
    }

    static String decode(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    static String encode(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
