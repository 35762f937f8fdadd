import com.sun.net.httpserver.Headers;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.MessageDigest;
import java.security.PublicKey;
import java.security.Signature;
import java.security.SignatureException;
import java.security.spec.X509EncodedKeySpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * A receiver of Carillon's calls that does everything once. Java 11 or newer, nothing to install:
 *
 * <p>SECRET=whsec_… java Receiver.java 127.0.0.1:7780 receiver.log
 *
 * <p>Where the topic signs with a key, PUBLIC_KEY=whpk_… instead; that takes Java 15.
 */
public class Receiver {
  static final String[] SIGNED = {"webhook-id", "webhook-timestamp", "carillon-topic", "carillon-timer",
      "carillon-due", "carillon-attempt", "carillon-fence", "carillon-receipt"};
  static final int MAX_BODY = 1 << 20;

  /** Whether a signature, v1,… or v1a,…, is that of a text. */
  interface Scheme {
    boolean fits(byte[] text, String signature) throws GeneralSecurityException;
  }

  final Scheme scheme;
  final FileChannel log;
  final Map<String, Long> fences = new HashMap<>(); // topic/timer → the highest fence, unsigned
  final Set<String> done = new HashSet<>(); // webhook-ids

  Receiver(Scheme scheme, Path file) throws IOException {
    this.scheme = scheme;
    log = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.WRITE);
    String text = Files.readString(file, StandardCharsets.ISO_8859_1);
    int whole = text.lastIndexOf('\n') + 1; // what follows was cut off by a crash
    log.truncate(whole).position(whole);
    text.substring(0, whole).lines().map(line -> line.split(" ")).forEach(this::apply);
  }

  static String get(Headers headers, String name) {
    String value = headers.getFirst(name);
    return value == null ? "" : value;
  }

  static Scheme bySecret(String secret) {
    byte[] key = Base64.getDecoder().decode(secret.replaceFirst("^whsec_", ""));
    return (text, signature) -> {
      Mac mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(key, "HmacSHA256"));
      String want = "v1," + Base64.getEncoder().encodeToString(mac.doFinal(text));
      return MessageDigest.isEqual(want.getBytes(StandardCharsets.UTF_8), signature.getBytes(StandardCharsets.UTF_8));
    };
  }

  static Scheme byKey(String publicKey) throws GeneralSecurityException {
    byte[] raw = Base64.getDecoder().decode(publicKey.replaceFirst("^whpk_", ""));
    byte[] head = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00}; // X.509 of an Ed25519 key
    byte[] encoded = ByteBuffer.allocate(head.length + raw.length).put(head).put(raw).array();
    PublicKey key = KeyFactory.getInstance("Ed25519").generatePublic(new X509EncodedKeySpec(encoded));
    return (text, signature) -> {
      if (!signature.startsWith("v1a,")) {
        return false;
      }
      Signature check = Signature.getInstance("Ed25519");
      check.initVerify(key);
      check.update(text);
      try {
        return check.verify(Base64.getDecoder().decode(signature.substring(4)));
      } catch (SignatureException | IllegalArgumentException e) {
        return false; // no signature at all
      }
    };
  }

  /** What is wrong with a call; "" when it is signed and new. */
  String verify(Headers headers, byte[] body) throws GeneralSecurityException {
    String stamp = get(headers, "webhook-timestamp");
    if (!stamp.matches("[0-9]{1,12}") || Math.abs(System.currentTimeMillis() / 1000 - Long.parseLong(stamp)) > 300) {
      return "too old, or not signed";
    }
    byte[] head = (get(headers, "webhook-id") + "." + stamp + ".").getBytes(StandardCharsets.UTF_8);
    byte[] message = ByteBuffer.allocate(head.length + body.length).put(head).put(body).array();
    List<String> values = new ArrayList<>(List.of("carillon-v1"));
    for (String name : SIGNED) {
      values.add(get(headers, name));
    }
    byte[] lines = String.join("\n", values).getBytes(StandardCharsets.UTF_8);
    for (var part : Map.of("webhook-signature", message, "carillon-signature", lines).entrySet()) {
      boolean fits = false;
      for (String one : get(headers, part.getKey()).split(" ", 17)) {
        fits |= scheme.fits(part.getValue(), one);
      }
      if (!fits) {
        return part.getKey() + " does not match";
      }
    }
    return "";
  }

  void apply(String[] line) {
    fences.put(line[2], Long.parseUnsignedLong(line[0]));
    done.add(line[1]);
  }

  /**
   * The status to answer. One line, written at once and synced, is one transaction: it stands for that of your database,
   * as README.md in this folder shows.
   */
  synchronized int receive(Headers call, byte[] body) throws IOException {
    String timer = get(call, "carillon-topic") + "/" + get(call, "carillon-timer");
    String id = get(call, "webhook-id");
    long fence = Long.parseUnsignedLong(get(call, "carillon-fence"));
    Long highest = fences.get(timer);
    if (highest != null && Long.compareUnsigned(fence, highest) <= 0) {
      return 409; // a later attempt has been here: this one was held up on its way
    }
    boolean repeated = done.contains(id); // done, but the answer was lost
    String[] line = {Long.toUnsignedString(fence), id, timer, repeated ? "-" : Base64.getEncoder().encodeToString(body)};
    log.write(ByteBuffer.wrap((String.join(" ", line) + "\n").getBytes(StandardCharsets.ISO_8859_1)));
    log.force(false);
    apply(line);
    if (!repeated) {
      System.out.println("did " + timer + " attempt " + get(call, "carillon-attempt"));
    }
    return 200;
  }

  void handle(HttpExchange exchange) throws IOException {
    byte[] body = exchange.getRequestBody().readNBytes(MAX_BODY + 1);
    int status = 413;
    try {
      if (body.length <= MAX_BODY) {
        String wrong = verify(exchange.getRequestHeaders(), body);
        status = wrong.isEmpty() ? receive(exchange.getRequestHeaders(), body) : 401;
      }
    } catch (GeneralSecurityException | RuntimeException e) {
      status = 500;
    }
    exchange.sendResponseHeaders(status, -1);
    exchange.close();
  }

  public static void main(String[] args) throws IOException, GeneralSecurityException {
    int colon = args[0].lastIndexOf(':');
    var address = new InetSocketAddress(args[0].substring(0, colon), Integer.parseInt(args[0].substring(colon + 1)));
    String key = System.getenv("PUBLIC_KEY");
    Receiver receiver = new Receiver(key != null ? byKey(key) : bySecret(System.getenv("SECRET")), Path.of(args[1]));
    HttpServer server = HttpServer.create(address, 0);
    server.setExecutor(Executors.newFixedThreadPool(16));
    server.createContext("/", receiver::handle);
    server.start();
  }
}
