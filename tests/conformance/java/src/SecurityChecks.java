import java.io.FileInputStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ExpireDelegationTokenOptions;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.errors.SslAuthenticationException;

/** Logins and TLS: who has the right settings writes and reads, and others are told what is wrong. */
final class SecurityChecks {
    private static final List<String> MECHANISMS = List.of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER");

    public static void everyMechanismLogsIn(Cluster c) throws Exception {
        for (String mechanism : MECHANISMS) {
            writeAndRead(c, login(c, "SASL_PLAINTEXT", mechanism));
        }
    }

    public static void everyMechanismLogsInOverTls(Cluster c) throws Exception {
        for (String mechanism : MECHANISMS) {
            writeAndRead(c, login(c, "SASL_SSL", mechanism));
        }
    }

    public static void bothVersionsOfTls(Cluster c) throws Exception {
        for (String version : List.of("TLSv1.2", "TLSv1.3")) {
            writeAndRead(c, connection(c, "SSL", "ssl.enabled.protocols", version));
        }
    }

    public static void anotherAuthorityIsNotTrusted(Cluster c) throws Exception {
        refused(SslAuthenticationException.class, connection(c, "SSL", "ssl.truststore.location", setting(c, "other.ca")));
    }

    public static void wrongPasswordsAndUnknownUsersAreRefused(Cluster c) throws Exception {
        for (String mechanism : List.of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")) {
            refused(SaslAuthenticationException.class, login(c, "SASL_PLAINTEXT", mechanism, setting(c, "user"), "wrong"));
            refused(SaslAuthenticationException.class, login(c, "SASL_PLAINTEXT", mechanism, "nobody", setting(c, "password")));
        }
    }

    public static void aSessionIsRenewedUnderLoad(Cluster c) throws Exception {
        String topic = c.topic(1);
        var producer = c.producer(login(c, "SASL_PLAINTEXT", "SCRAM-SHA-512"));
        long end = System.nanoTime() + 5_000_000_000L; // three sessions
        int sent = 0;
        while (System.nanoTime() < end) {
            producer.send(new ProducerRecord<>(topic, "v" + sent++)).get();
            Thread.sleep(2);
        }
        var consumer = c.consumer(with(login(c, "SASL_PLAINTEXT", "SCRAM-SHA-512"), "group.id", Cluster.name("group")));
        consumer.subscribe(List.of(topic));
        var taken = Cluster.take(consumer, sent);
        for (int i = 0; i < sent; i++) {
            Cluster.equal("v" + i, taken.get(i).value(), "record");
        }
    }

    public static void aChangedPasswordHoldsForNewLogins(Cluster c) throws Exception {
        String user = Cluster.name("user");
        for (String password : List.of("first-password", "second-password")) {
            var info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
            Cluster.get(c.admin().alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(user, info, password))).all());
            Cluster.eventually("the login by " + password, () -> {
                try (Admin admin = admin(login(c, "SASL_PLAINTEXT", "SCRAM-SHA-256", user, password))) {
                    return !Cluster.get(admin.describeCluster().nodes()).isEmpty();
                }
            });
        }
        refused(SaslAuthenticationException.class, login(c, "SASL_PLAINTEXT", "SCRAM-SHA-256", user, "first-password"));
    }

    public static void aTokenLogsInUntilItIsExpired(Cluster c) throws Exception {
        try (Admin owner = admin(login(c, "SASL_PLAINTEXT", "SCRAM-SHA-256"))) {
            var token = Cluster.get(owner.createDelegationToken().delegationToken());
            String[] settings = login(c, "SASL_PLAINTEXT", "SCRAM-SHA-256", token.tokenInfo().tokenId(), token.hmacAsBase64String());
            settings[settings.length - 1] = settings[settings.length - 1].replace(";", " tokenauth=\"true\";");
            Cluster.eventually("the token", () -> {
                try (Admin admin = admin(settings)) {
                    return !Cluster.get(admin.describeCluster().nodes()).isEmpty();
                }
            });
            writeAndRead(c, settings);
            var now = new ExpireDelegationTokenOptions().expiryTimePeriodMs(-1);
            Cluster.get(owner.expireDelegationToken(token.hmac(), now).expiryTimestamp());
            Cluster.eventually("its end", () -> refused(SaslAuthenticationException.class, settings) != null);
        }
    }

    private static void writeAndRead(Cluster c, String... settings) throws Exception {
        String topic = c.topic(1);
        var producer = c.producer(settings);
        for (int i = 0; i < 100; i++) {
            producer.send(new ProducerRecord<>(topic, "k", "v" + i));
        }
        producer.flush();
        var consumer = c.consumer(with(settings, "group.id", Cluster.name("group")));
        consumer.subscribe(List.of(topic));
        Cluster.equal("v99", Cluster.take(consumer, 100).get(99).value(), "the last by " + String.join(" ", settings[1], settings[3]));
    }

    private static <T extends Throwable> T refused(Class<T> kind, String... settings) throws Exception {
        try (Admin admin = admin(settings)) {
            return Cluster.fails(kind, () -> Cluster.get(admin.describeCluster().nodes()));
        }
    }

    private static Admin admin(String... settings) {
        Map<String, Object> config = new HashMap<>(Map.of("default.api.timeout.ms", "20000", "request.timeout.ms", "10000"));
        for (int i = 0; i < settings.length; i += 2) {
            config.put(settings[i], settings[i + 1]);
        }
        return Admin.create(config);
    }

    private static String[] login(Cluster c, String protocol, String mechanism) throws Exception {
        return login(c, protocol, mechanism, setting(c, "user"), setting(c, "password"));
    }

    /** Settings of a login; the last is the JAAS entry. */
    private static String[] login(Cluster c, String protocol, String mechanism, String user, String password) throws Exception {
        String quoted = "\"" + password.replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
        String security = "org.apache.kafka.common.security.";
        String entry = switch (mechanism) {
            case "PLAIN" -> security + "plain.PlainLoginModule required username=\"" + user + "\" password=" + quoted + ";";
            case "OAUTHBEARER" -> security + "oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"" + user + "\";";
            default -> security + "scram.ScramLoginModule required username=\"" + user + "\" password=" + quoted + ";";
        };
        return connection(c, protocol, "sasl.mechanism", mechanism, "sasl.jaas.config", entry);
    }

    private static String[] connection(Cluster c, String protocol, String... more) throws Exception {
        String[] settings = {
            "bootstrap.servers", setting(c, protocol), "security.protocol", protocol,
            "ssl.truststore.type", "PEM", "ssl.truststore.location", setting(c, "ca"),
        };
        return with(settings, more);
    }

    private static String[] with(String[] settings, String... more) {
        var all = new ArrayList<>(Arrays.asList(settings));
        all.addAll(Arrays.asList(more));
        return all.toArray(new String[0]);
    }

    private static String setting(Cluster c, String name) throws Exception {
        var properties = new Properties();
        try (var file = new FileInputStream(Path.of(c.work, "secure.properties").toFile())) {
            properties.load(file);
        }
        return properties.getProperty(name);
    }
}
