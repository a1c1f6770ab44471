"""The words of the demo model's text."""


def _split(words: str) -> tuple[str, ...]:
    return tuple(words.split())


FIRST_NAMES = _split(
    "Anna Ben Clara Daniel Emma Frank Grace Henry Iris Jack Kate Leo Maria Nina Oscar Paul Rosa Sam Tom Vera "
    "Alice Bruno Carl Diana Eric Felix Gina Hugo Ivan Julia Karl Laura Max Nora Oliver Peter Ruth Simon Tina "
    "Victor Wendy Adam Bella Chris David Elena Fred Hannah James Lucy Martin Mary John Sarah Harry Jane Robert "
    "Helen George Charlie Molly Arthur Rose Edward Ella William Lily Thomas Eva Walter Ada Alan Sophie Mark"
)
SYLLABLES = _split(
    "bar bel bor cal dan dor el far fen gal gar hal han kel kor lan len mar mel mor nar nel or pen ran rel ros "
    "sal sel tal tan tor val van vel ver wen zan"
)
ENDINGS = _split("ton son man ley well ford berg den ville mont field by wick ham stone wood ker lin ron dale")
ANIMALS = _split(
    "fox dog cat horse cow goat sheep pig rabbit mouse bear wolf lion tiger deer owl crow duck goose hen swan "
    "frog snake turtle bee ant spider whale fish otter badger donkey monkey elephant camel eagle hawk robin"
)
COLOURS = _split("red blue green yellow brown black white grey orange purple pink golden silver")
SIZES = _split("small big large tiny huge tall short long wide narrow heavy light thin thick")
ADJECTIVES = _split(
    "quick lazy old young happy sad clever brave quiet loud kind proud hungry sleepy angry gentle strange "
    "famous poor rich friendly curious patient careful honest lonely silent busy tired funny wise shy strong"
)
THING_ADJECTIVES = _split(
    "old new broken clean dirty empty full round square soft hard warm cold wooden heavy light beautiful "
    "simple strange small large bright dark sharp smooth wet dry cheap precious plain"
)
OBJECTS = _split(
    "lamp rope kettle map book key clock chair table box basket bottle cup plate spoon knife ring coat hat "
    "shoe mirror candle letter picture drum bell ball kite stone coin ladder hammer bucket brush blanket "
    "pillow pencil umbrella lantern violin piano wheel boat sword crown flag window door compass camera radio"
)
FOODS = _split(
    "bread butter cheese soup rice milk honey sugar salt pepper apples pears plums cherries onions carrots "
    "potatoes beans peas eggs fish chicken tea coffee cake jam nuts corn tomatoes mushrooms garlic lemons"
)
PLACES = _split(
    "river forest garden market station school library church bridge harbour village castle kitchen field "
    "mountain lake beach island road park museum hospital theatre bakery farm mill tower valley hill cave"
)
TOWNS = _split(
    "London Paris Rome Berlin Madrid Vienna Dublin Oslo Boston Chicago Tokyo Delhi Cairo Moscow Prague Athens "
    "Lisbon Sydney Toronto Bristol Oxford Cambridge York Dover Milan Venice Hamburg Geneva"
)
JOBS = _split(
    "teacher doctor baker farmer sailor soldier painter singer writer driver nurse judge king queen captain "
    "lawyer builder cook hunter miller tailor student engineer pilot gardener musician carpenter"
)
DAYS = _split("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = _split("January February March April May June July August September October November December")
WEATHER = _split("rain snow wind fog sun thunder ice mist hail frost")
SPEECH = _split("said asked answered whispered shouted replied cried laughed")
ANIMAL_VERBS = _split(
    "jumps:over runs:past looks:at walks:around sits:beside waits:for barks:at hides:from swims:with "
    "sleeps:near flies:over sings:to laughs:at points:to climbs:over follows:after dances:with talks:to"
)
MOVES = _split("walked ran went hurried drove rode travelled climbed returned wandered")
HANDLING = _split(
    "found lost bought sold took carried hid broke painted cleaned repaired dropped wanted loved opened kept "
    "borrowed held needed forgot"
)
FEELINGS = _split("happy sad tired hungry proud angry afraid surprised worried glad lonely calm excited cold")
LANGUAGES = _split("French German Spanish Italian Russian Chinese Japanese Latin Greek English")
FIELDS = _split("name age city job animal colour number day food friend")
MATERIALS = _split("wood iron glass paper silver gold stone leather cotton silk clay copper")
LETTERS = _split("A B C D E F G H I J K L M N O P Q R S T U V W X Y Z")
VARIABLES = _split("a b c d e f g h i j k m n p q r s t u v w x y z")
NUMBER_WORDS = _split("one two three four five six seven eight nine ten eleven twelve")
PLURALS = _split("cats dogs books birds stars trees stones boats apples coins horses letters children houses")
